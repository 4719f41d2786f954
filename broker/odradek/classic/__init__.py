"""The consumers and producers of Kafka before 0.9, with the names of their documents (design note 0031).

from odradek.classic import Consumer

connector = Consumer.create({"zookeeper.connect": "127.0.0.1:2181", "group.id": "g"})
for message in connector.create_message_streams({"topic": 1})["topic"][0]:
    print(message.offset, message.message)
"""

from odradek.classic.assignment import ConsumerThread
from odradek.classic.classic_producer import ClassicProducer as Producer
from odradek.classic.classic_producer import QueueFullError
from odradek.classic.consumer_config import ConsumerConfig
from odradek.classic.consumer_connector import ClassicConsumer as Consumer
from odradek.classic.consumer_connector import ConsumerConnector
from odradek.classic.message_streams import ConsumerTimeoutError, MessageAndMetadata, MessageStream
from odradek.classic.producer_config import ProducerConfig
from odradek.classic.producer_plugins import (
    CallbackHandler,
    DefaultEncoder,
    Encoder,
    EventHandler,
    HashPartitioner,
    ProducerData,
    StringEncoder,
)
from odradek.classic.producer_plugins import ClassicPartitioner as Partitioner
from odradek.classic.rebalancer import ConsumerRebalanceFailedError
from odradek.classic.simple_consumer import (
    EARLIEST_TIME,
    LATEST_TIME,
    ByteBufferMessageSet,
    Message,
    MessageAndOffset,
    SimpleConsumer,
)
from odradek.classic.simple_consumer import ClassicFetchRequest as FetchRequest
from odradek.classic.topic_filters import Blacklist, TopicFilter, Whitelist

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Blacklist",
    "ByteBufferMessageSet",
    "CallbackHandler",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerRebalanceFailedError",
    "ConsumerThread",
    "ConsumerTimeoutError",
    "DefaultEncoder",
    "Encoder",
    "EventHandler",
    "FetchRequest",
    "HashPartitioner",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageStream",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "QueueFullError",
    "SimpleConsumer",
    "StringEncoder",
    "TopicFilter",
    "Whitelist",
]
