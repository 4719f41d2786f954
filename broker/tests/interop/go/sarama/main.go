// A member of a group with sarama, until it is killed. Arguments: bootstrap servers, group, topic.
//
// It prints "assigned GENERATION PARTITION..." after each rebalance, and "records PARTITION FIRST LAST" for records that
// it has received.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type member struct{ topic string }

func (m member) Setup(session sarama.ConsumerGroupSession) error {
	line := fmt.Sprint("assigned ", session.GenerationID())
	for _, partition := range session.Claims()[m.topic] {
		line += fmt.Sprint(" ", partition)
	}
	fmt.Println(line)
	return nil
}

func (m member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			fmt.Println("records", message.Partition, message.Offset, message.Offset)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	servers, group, topic := os.Args[1], os.Args[2], os.Args[3]
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	client, err := sarama.NewConsumerGroup(strings.Split(servers, ","), group, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		// Each call is one generation.
		if err := client.Consume(context.Background(), []string{topic}, member{topic}); err != nil {
			fmt.Println("consume failed:", err)
		}
	}
}
