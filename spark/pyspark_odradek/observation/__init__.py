"""Makes streaming queries visible: metrics for Prometheus, and their progress as a consumer group.

spark.streams.addListener(QueryListener(port=9405))
"""

from pyspark_odradek.observation.progress_commits import ProgressCommits
from pyspark_odradek.observation.query_listener import QueryListener

__all__ = ["ProgressCommits", "QueryListener"]
