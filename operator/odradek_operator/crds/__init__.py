"""The resources of `odradek.dev/v1`: `types` are the values, `reader` makes them of documents, `schema` the CRDs."""

from odradek_operator.crds.reader import AUTHENTICATIONS as AUTHENTICATIONS
from odradek_operator.crds.reader import OPERATED_KEYS as OPERATED_KEYS
from odradek_operator.crds.reader import read_resources as read_resources
from odradek_operator.crds.types import API_GROUP as API_GROUP
from odradek_operator.crds.types import API_VERSION as API_VERSION
from odradek_operator.crds.types import DEFAULT_REPLICAS as DEFAULT_REPLICAS
from odradek_operator.crds.types import DEFAULT_VERSION as DEFAULT_VERSION
from odradek_operator.crds.types import MAX_BROKERS as MAX_BROKERS
from odradek_operator.crds.types import MAX_PARTITIONS as MAX_PARTITIONS
from odradek_operator.crds.types import Brokers as Brokers
from odradek_operator.crds.types import Cluster as Cluster
from odradek_operator.crds.types import ComputeResources as ComputeResources
from odradek_operator.crds.types import Deletion as Deletion
from odradek_operator.crds.types import Drift as Drift
from odradek_operator.crds.types import Listener as Listener
from odradek_operator.crds.types import ListenerType as ListenerType
from odradek_operator.crds.types import Monitoring as Monitoring
from odradek_operator.crds.types import PodTemplate as PodTemplate
from odradek_operator.crds.types import Rebalance as Rebalance
from odradek_operator.crds.types import Resources as Resources
from odradek_operator.crds.types import Topic as Topic
from odradek_operator.crds.types import Volume as Volume
from odradek_operator.crds.types import ZooKeeper as ZooKeeper
from odradek_operator.crds.types import same_spec as same_spec
