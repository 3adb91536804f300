package quire

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestItemsLiveAndDie(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	within, ada := deadline(t), key("ada")
	item := object{"id": "1", "pk": "ada", "text": "Ünï \"quoted\" \n", "list": []any{1.5, nil, true, object{"a": "b"}}}
	written := &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
	created, err := items.CreateItem(within, ada, encode(t, item), written)
	must(t, err)
	if created.RawResponse.StatusCode != http.StatusCreated || created.RequestCharge <= 0 || created.SessionToken == nil {
		t.Fatalf("%+v", created)
	}
	stored := decode[object](t, created.Value)
	if !reflect.DeepEqual(stored["list"], item["list"]) || stored["text"] != item["text"] || stored["_etag"] == nil {
		t.Fatalf("%v", stored)
	}
	_, err = items.CreateItem(within, ada, encode(t, item), nil)
	refused(t, err, http.StatusConflict)

	first := created.ETag
	item["age"] = 36
	replaced, err := items.ReplaceItem(within, ada, "1", encode(t, item), &azcosmos.ItemOptions{IfMatchEtag: &first})
	must(t, err)
	if replaced.ETag == first || len(replaced.Value) != 0 {
		t.Fatalf("%+v", replaced)
	}
	_, err = items.ReplaceItem(within, ada, "1", encode(t, item), &azcosmos.ItemOptions{IfMatchEtag: &first})
	refused(t, err, http.StatusPreconditionFailed)
	_, err = items.ReplaceItem(within, ada, "none", encode(t, object{"id": "none", "pk": "ada"}), nil)
	refused(t, err, http.StatusNotFound)

	item["age"] = 37
	upserted, err := items.UpsertItem(within, ada, encode(t, item), nil)
	must(t, err)
	if upserted.RawResponse.StatusCode != http.StatusOK {
		t.Fatal(upserted.RawResponse.Status)
	}
	read, err := items.ReadItem(within, ada, "1", &azcosmos.ItemOptions{SessionToken: upserted.SessionToken})
	must(t, err)
	if age := decode[object](t, read.Value)["age"]; age != 37.0 {
		t.Fatal(age)
	}
	_, err = items.ReadItem(within, key("bob"), "1", nil)
	refused(t, err, http.StatusNotFound)
	_, err = items.DeleteItem(within, ada, "1", nil)
	must(t, err)
	_, err = items.DeleteItem(within, ada, "1", nil)
	refused(t, err, http.StatusNotFound)
}

func TestKeysOfEveryKind(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	within := deadline(t)
	keys := map[string]azcosmos.PartitionKey{
		`"text"`: key("text"), `1.5`: azcosmos.NewPartitionKeyNumber(1.5), `true`: azcosmos.NewPartitionKeyBool(true), `null`: azcosmos.NullPartitionKey,
	}
	for text, value := range keys {
		_, err := items.CreateItem(within, value, []byte(`{"id": "1", "pk": `+text+`}`), nil)
		must(t, err)
	}
	for text, value := range keys {
		read, err := items.ReadItem(within, value, "1", nil)
		must(t, err)
		if got := string(encode(t, decode[object](t, read.Value)["pk"])); got != text {
			t.Fatalf("%s is not %s", got, text)
		}
	}
}

func TestHierarchicalKeys(t *testing.T) {
	definition := azcosmos.PartitionKeyDefinition{Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2, Paths: []string{"/tenant", "/user"}}
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{PartitionKeyDefinition: definition})
	within := deadline(t)
	full := func(tenant, user string) azcosmos.PartitionKey {
		return azcosmos.NewPartitionKey().AppendString(tenant).AppendString(user)
	}
	for number := range 10 {
		tenant, user := fmt.Sprintf("t%d", number%2), fmt.Sprintf("u%d", number)
		item := object{"id": "1", "tenant": tenant, "user": user}
		_, err := items.CreateItem(within, full(tenant, user), encode(t, item), nil)
		must(t, err)
	}
	read, err := items.ReadItem(within, full("t1", "u3"), "1", nil)
	must(t, err)
	if decode[object](t, read.Value)["user"] != "u3" {
		t.Fatal(string(read.Value))
	}
	_, err = items.ReadItem(within, full("t0", "u3"), "1", nil)
	refused(t, err, http.StatusNotFound)
}

func TestPatch(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	within, ada := deadline(t), key("ada")
	create(t, items, object{"id": "1", "pk": "ada", "count": 1, "old": true, "name": "a", "list": []any{1, 3}})
	patch := azcosmos.PatchOperations{}
	patch.AppendAdd("/list/1", 2)
	patch.AppendSet("/name", "b")
	patch.AppendReplace("/pages", 3)
	patch.AppendRemove("/old")
	patch.AppendIncrement("/count", 41)
	_, err := items.PatchItem(within, ada, "1", patch, nil)
	refused(t, err, http.StatusBadRequest) // there are no pages to replace

	patch = azcosmos.PatchOperations{}
	patch.SetCondition("FROM c WHERE c.count = 1")
	patch.AppendAdd("/list/1", 2)
	patch.AppendSet("/name", "b")
	patch.AppendRemove("/old")
	patch.AppendIncrement("/count", 41)
	patched, err := items.PatchItem(within, ada, "1", patch, &azcosmos.ItemOptions{EnableContentResponseOnWrite: true})
	must(t, err)
	item := decode[object](t, patched.Value)
	if item["count"] != 42.0 || item["name"] != "b" || item["old"] != nil || !reflect.DeepEqual(item["list"], []any{1.0, 2.0, 3.0}) {
		t.Fatal(item)
	}
	_, err = items.PatchItem(within, ada, "1", patch, nil)
	refused(t, err, http.StatusPreconditionFailed)
}

func TestBatchIsAllOrNothing(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	within, ada := deadline(t), key("ada")
	create(t, items, object{"id": "0", "pk": "ada", "count": 0})
	batch := items.NewTransactionalBatch(ada)
	batch.CreateItem(encode(t, object{"id": "1", "pk": "ada"}), nil)
	batch.UpsertItem(encode(t, object{"id": "2", "pk": "ada"}), nil)
	patch := azcosmos.PatchOperations{}
	patch.AppendIncrement("/count", 5)
	batch.PatchItem("0", patch, nil)
	batch.ReplaceItem("2", encode(t, object{"id": "2", "pk": "ada", "new": true}), nil)
	batch.ReadItem("0", nil)
	batch.DeleteItem("1", nil)
	done, err := items.ExecuteTransactionalBatch(within, batch, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})
	must(t, err)
	statuses := []int32{}
	for _, result := range done.OperationResults {
		statuses = append(statuses, result.StatusCode)
	}
	if !done.Success || !reflect.DeepEqual(statuses, []int32{201, 201, 200, 200, 200, 204}) {
		t.Fatalf("%v %v", done.Success, statuses)
	}
	if decode[object](t, done.OperationResults[4].ResourceBody)["count"] != 5.0 {
		t.Fatal(string(done.OperationResults[4].ResourceBody))
	}

	failing := items.NewTransactionalBatch(ada)
	failing.CreateItem(encode(t, object{"id": "3", "pk": "ada"}), nil)
	failing.CreateItem(encode(t, object{"id": "2", "pk": "ada"}), nil)
	done, err = items.ExecuteTransactionalBatch(within, failing, nil)
	must(t, err)
	if done.Success || done.OperationResults[0].StatusCode != 424 || done.OperationResults[1].StatusCode != 409 {
		t.Fatalf("%+v", done.OperationResults)
	}
	_, err = items.ReadItem(within, ada, "3", nil)
	refused(t, err, http.StatusNotFound)
}

func TestReadMany(t *testing.T) {
	items := container(t, database(t, client(t)), azcosmos.ContainerProperties{})
	wanted := []azcosmos.ItemIdentity{}
	for number := range 40 {
		partition := fmt.Sprintf("p%d", number%7)
		create(t, items, object{"id": fmt.Sprint(number), "pk": partition})
		if number%3 == 0 {
			wanted = append(wanted, azcosmos.ItemIdentity{ID: fmt.Sprint(number), PartitionKey: key(partition)})
		}
	}
	wanted = append(wanted, azcosmos.ItemIdentity{ID: "none", PartitionKey: key("p0")})
	read, err := items.ReadManyItems(deadline(t), wanted, nil)
	must(t, err)
	found := map[string]bool{}
	for _, item := range read.Items {
		found[decode[object](t, item)["id"].(string)] = true
	}
	if len(read.Items) != 14 || len(found) != 14 || !found["39"] {
		t.Fatalf("%d of 14: %v", len(read.Items), found)
	}
}
