package quire

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestDatabasesAndContainers(t *testing.T) {
	account := client(t)
	made := database(t, account)
	within := deadline(t)
	_, err := account.CreateDatabase(within, azcosmos.DatabaseProperties{ID: made.ID()}, nil)
	refused(t, err, http.StatusConflict)
	databases := account.NewQueryDatabasesPager("SELECT * FROM root r WHERE r.id = @id", &azcosmos.QueryDatabasesOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: made.ID()}},
	})
	page, err := databases.NextPage(within)
	must(t, err)
	if len(page.Databases) != 1 || page.Databases[0].ID != made.ID() {
		t.Fatalf("%+v", page.Databases)
	}
	properties := azcosmos.ContainerProperties{
		ID:                     "all",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2},
		DefaultTimeToLive:      to.Ptr(int32(60)),
		UniqueKeyPolicy:        &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}}},
		IndexingPolicy: &azcosmos.IndexingPolicy{
			Automatic: true, IndexingMode: azcosmos.IndexingModeConsistent,
			IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}}, ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/blob/?"}},
			CompositeIndexes: [][]azcosmos.CompositeIndex{{
				{Path: "/a", Order: azcosmos.CompositeIndexAscending}, {Path: "/b", Order: azcosmos.CompositeIndexDescending},
			}},
		},
	}
	items := container(t, made, properties)
	read, err := items.Read(within, nil)
	must(t, err)
	kept := read.ContainerProperties
	if *kept.DefaultTimeToLive != 60 || kept.UniqueKeyPolicy.UniqueKeys[0].Paths[0] != "/email" || len(kept.IndexingPolicy.CompositeIndexes[0]) != 2 {
		t.Fatalf("%+v", kept)
	}
	create(t, items, object{"id": "1", "pk": "a", "email": "x"})
	_, err = items.CreateItem(within, key("a"), encode(t, object{"id": "2", "pk": "a", "email": "x"}), nil)
	refused(t, err, http.StatusConflict)

	kept.DefaultTimeToLive = to.Ptr(int32(-1))
	replaced, err := items.Replace(within, *kept, nil)
	must(t, err)
	if *replaced.ContainerProperties.DefaultTimeToLive != -1 {
		t.Fatalf("%+v", replaced.ContainerProperties)
	}
	containers, err := made.NewQueryContainersPager("SELECT * FROM c", nil).NextPage(within)
	must(t, err)
	if len(containers.Containers) != 1 || containers.Containers[0].ID != "all" {
		t.Fatalf("%+v", containers.Containers)
	}
	_, err = items.Delete(within, nil)
	must(t, err)
	_, err = items.Read(within, nil)
	refused(t, err, http.StatusNotFound)
}

func TestThroughput(t *testing.T) {
	made := database(t, client(t))
	within := deadline(t)
	properties := azcosmos.ContainerProperties{ID: "c", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2}}
	throughput := azcosmos.NewManualThroughputProperties(400)
	_, err := made.CreateContainer(within, properties, &azcosmos.CreateContainerOptions{ThroughputProperties: &throughput})
	must(t, err)
	items, err := made.NewContainer("c")
	must(t, err)
	read, err := items.ReadThroughput(within, nil)
	must(t, err)
	if manual, ok := read.ThroughputProperties.ManualThroughput(); !ok || manual != 400 {
		t.Fatalf("%v %v", manual, ok)
	}
	_, err = items.ReplaceThroughput(within, azcosmos.NewManualThroughputProperties(700), nil)
	must(t, err)
	read, err = items.ReadThroughput(within, nil)
	must(t, err)
	if manual, _ := read.ThroughputProperties.ManualThroughput(); manual != 700 {
		t.Fatal(manual)
	}
	_, err = items.ReplaceThroughput(within, azcosmos.NewManualThroughputProperties(5), nil)
	refused(t, err, http.StatusBadRequest)
}

// Everything once from the beginning, then what changed since, range by range.
func TestChangeFeedIsPulled(t *testing.T) {
	items := filled(t)
	within := deadline(t)
	ranges, err := items.ReadFeedRanges(within, nil)
	must(t, err)
	if len(ranges) != partitions(t) {
		t.Fatalf("%d ranges", len(ranges))
	}
	tokens := map[int]string{}
	seen := map[string]int{}
	drain := func() {
		for at := range ranges {
			for {
				options := azcosmos.ChangeFeedOptions{FeedRange: &ranges[at], MaxItemCount: 7}
				if token, ok := tokens[at]; ok {
					options.Continuation = &token
				}
				page, err := items.ReadChangeFeed(within, &options)
				must(t, err)
				for _, item := range page.Items {
					seen[decode[object](t, item)["id"].(string)]++
				}
				tokens[at] = page.ContinuationToken
				if len(page.Items) == 0 {
					break
				}
			}
		}
	}
	drain()
	if len(seen) != itemCount || seen["7"] != 1 {
		t.Fatalf("%d items: %v", len(seen), seen)
	}
	create(t, items, object{"id": "new", "pk": "p1"})
	_, err = items.UpsertItem(within, key("p1"), encode(t, object{"id": "7", "pk": "p1", "again": true}), nil)
	must(t, err)
	drain()
	if len(seen) != itemCount+1 || seen["new"] != 1 || seen["7"] != 2 || seen["8"] != 1 {
		t.Fatalf("%d items: %v", len(seen), seen)
	}
}

func TestAWrongKeyIsRefused(t *testing.T) {
	endpoint := client(t).Endpoint()
	other, err := azcosmos.NewKeyCredential(strings.Replace(wellKnownKey, "C2y", "D2y", 1))
	must(t, err)
	stranger, err := azcosmos.NewClientWithKey(endpoint, other, nil)
	must(t, err)
	defer stranger.Close()
	_, err = stranger.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: name("go")}, nil)
	refused(t, err, http.StatusUnauthorized)
}
