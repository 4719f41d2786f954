"""Checks the store of the pipelines in an S3 bucket. Usage: s3_store.py LOCATION, with Spark's settings for S3."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from odradek_testkit.interop.file_stores import check_file_store, check_that_one_of_several_creates
from pyspark_odradek.pipelines.hadoop_store import HadoopStore, open_store

spark = SparkSession.builder.master("local[1]").getOrCreate()
store = open_store(spark, sys.argv[1])
assert isinstance(store, HadoopStore)
check_file_store(store)
check_that_one_of_several_creates(store)
spark.stop()
