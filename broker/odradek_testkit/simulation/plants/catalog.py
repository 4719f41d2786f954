"""All planted bugs."""

from __future__ import annotations

from typing import Final

from odradek_testkit.simulation.plants.cluster_plants import CLUSTER_PLANTS
from odradek_testkit.simulation.plants.disk_plants import DISK_PLANTS
from odradek_testkit.simulation.plants.group_plants import GROUP_PLANTS
from odradek_testkit.simulation.plants.log_plants import LOG_PLANTS
from odradek_testkit.simulation.plants.small_request_plants import SMALL_REQUEST_PLANTS
from odradek_testkit.simulation.plants.transaction_plants import TRANSACTION_PLANTS

PLANTS: Final = (
    *CLUSTER_PLANTS,
    *LOG_PLANTS,
    *DISK_PLANTS,
    *TRANSACTION_PLANTS,
    *GROUP_PLANTS,
    *SMALL_REQUEST_PLANTS,
)
