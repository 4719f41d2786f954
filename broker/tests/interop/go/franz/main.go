// A member of a group with franz-go, until it is killed. Arguments: bootstrap servers, group, topic.
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

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	servers, group, topic := os.Args[1], os.Args[2], os.Args[3]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, assigned map[string][]int32) {
			_, generation := client.GroupMetadata()
			line := fmt.Sprint("assigned ", generation)
			for _, partition := range assigned[topic] {
				line += fmt.Sprint(" ", partition)
			}
			fmt.Println(line)
		}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			if count := len(fetched.Records); count > 0 {
				fmt.Println("records", fetched.Partition, fetched.Records[0].Offset, fetched.Records[count-1].Offset)
			}
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Println("commit failed:", err)
		}
		client.AllowRebalance()
	}
}
