package quire

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

const itemCount = 60

// Items 0 to 59 in six logical partitions: n counts, g is n modulo 4.
func filled(t *testing.T) *azcosmos.ContainerClient {
	t.Helper()
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	for number := range itemCount {
		create(t, items, object{"id": fmt.Sprint(number), "pk": fmt.Sprintf("p%d", number%6), "n": number, "g": number % 4})
	}
	return items
}

// The numbers of one logical partition, ascending.
func ofPartition(partition int) []int {
	numbers := []int{}
	for number := partition; number < itemCount; number += 6 {
		numbers = append(numbers, number)
	}
	return numbers
}

func equal[T any](t *testing.T, what string, got, expected []T) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("%s: got %v, expected %v", what, got, expected)
	}
}

func TestQueriesOfOneKey(t *testing.T) {
	items := filled(t)
	p2 := key("p2")
	numbers := ofPartition(2)
	falling := slices.Clone(numbers)
	slices.Reverse(falling)
	for _, size := range []int32{0, 1, 3, 100} {
		options := azcosmos.QueryOptions{PageSizeHint: size}
		equal(t, "ORDER BY", rows[int](t, items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", p2, options), falling)
		equal(t, "OFFSET", rows[int](t, items, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 5", p2, options), numbers[2:7])
		equal(t, "TOP", rows[int](t, items, "SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n", p2, options), numbers[:4])
		distinct := rows[int](t, items, "SELECT DISTINCT VALUE c.g FROM c", p2, options)
		slices.Sort(distinct)
		equal(t, "DISTINCT", distinct, []int{0, 2})
	}
	equal(t, "COUNT", rows[int](t, items, "SELECT VALUE COUNT(1) FROM c", p2, azcosmos.QueryOptions{}), []int{10})
	equal(t, "SUM", rows[int](t, items, "SELECT VALUE SUM(c.n) FROM c", p2, azcosmos.QueryOptions{}), []int{290})
	groups := rows[object](t, items, "SELECT c.g, COUNT(1) AS count, MAX(c.n) AS most FROM c GROUP BY c.g", p2, azcosmos.QueryOptions{})
	slices.SortFunc(groups, func(a, b object) int { return int(a["g"].(float64) - b["g"].(float64)) })
	equal(t, "GROUP BY", groups, []object{{"g": 0.0, "count": 5.0, "most": 56.0}, {"g": 2.0, "count": 5.0, "most": 50.0}})
}

func TestParametersAndMetrics(t *testing.T) {
	items := filled(t)
	options := azcosmos.QueryOptions{
		QueryParameters:      []azcosmos.QueryParameter{{Name: "@low", Value: 20}, {Name: "@high", Value: 40}},
		PopulateIndexMetrics: true,
	}
	sql := "SELECT VALUE c.n FROM c WHERE c.n >= @low AND c.n < @high"
	page, err := items.NewQueryItemsPager(sql, key("p2"), &options).NextPage(deadline(t))
	must(t, err)
	if len(page.Items) != 4 || page.RequestCharge <= 0 || page.IndexMetrics == nil || page.QueryMetrics == nil {
		t.Fatalf("%+v", page)
	}
}

// Without a key this client leaves it to the gateway, which streams and leaves out what has to be merged.
func TestQueriesOfAllKeys(t *testing.T) {
	items := filled(t)
	all := azcosmos.NewPartitionKey()
	for _, size := range []int32{0, 1, 7, 1000} {
		found := rows[int](t, items, "SELECT VALUE c.n FROM c WHERE c.n >= 10", all, azcosmos.QueryOptions{PageSizeHint: size})
		slices.Sort(found)
		expected := []int{}
		for number := 10; number < itemCount; number++ {
			expected = append(expected, number)
		}
		equal(t, fmt.Sprintf("pages of %d", size), found, expected)
	}
	for _, sql := range []string{
		"SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT DISTINCT VALUE c.g FROM c", "SELECT c.g FROM c GROUP BY c.g", "SELECT VALUE SUM(c.n) FROM c",
	} {
		_, err := items.NewQueryItemsPager(sql, all, nil).NextPage(deadline(t))
		if partitions(t) > 1 {
			refused(t, err, http.StatusBadRequest)
		}
	}
}

func TestBadQueriesAreRefused(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	_, err := items.NewQueryItemsPager("SELEC * FROM c", key("a"), nil).NextPage(deadline(t))
	refused(t, err, http.StatusBadRequest)
}
