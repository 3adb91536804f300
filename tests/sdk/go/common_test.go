// The official Go SDK against a live server, named by QUIRE_ENDPOINT, QUIRE_PARTITIONS and QUIRE_CA.
package quire

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The public key of the emulators.
const wellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

type object = map[string]any

func deadline(t *testing.T) context.Context {
	t.Helper()
	bounded, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return bounded
}

// The authority of an https endpoint is trusted through SSL_CERT_FILE.
func client(t *testing.T) *azcosmos.Client {
	t.Helper()
	endpoint := os.Getenv("QUIRE_ENDPOINT")
	if endpoint == "" {
		t.Fatal("QUIRE_ENDPOINT names the server to test")
	}
	made, err := azcosmos.NewClientFromConnectionString("AccountEndpoint="+endpoint+";AccountKey="+wellKnownKey+";", nil)
	must(t, err)
	t.Cleanup(made.Close)
	return made
}

func partitions(t *testing.T) int {
	t.Helper()
	count, err := strconv.Atoi(os.Getenv("QUIRE_PARTITIONS"))
	must(t, err)
	return count
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The error of the service, with the status that is expected.
func refused(t *testing.T, err error, status int) *azcore.ResponseError {
	t.Helper()
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		t.Fatalf("expected %d, got %v", status, err)
	}
	if answer.StatusCode != status {
		t.Fatalf("expected %d, got %d: %v", status, answer.StatusCode, err)
	}
	return answer
}

func name(prefix string) string {
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return prefix + "-" + hex.EncodeToString(random)
}

func database(t *testing.T, client *azcosmos.Client) *azcosmos.DatabaseClient {
	t.Helper()
	id := name("go")
	_, err := client.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: id}, nil)
	must(t, err)
	made, err := client.NewDatabase(id)
	must(t, err)
	t.Cleanup(func() {
		if _, err := made.Delete(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	return made
}

func container(t *testing.T, database *azcosmos.DatabaseClient, properties azcosmos.ContainerProperties) *azcosmos.ContainerClient {
	t.Helper()
	if properties.ID == "" {
		properties.ID = name("c")
	}
	if properties.PartitionKeyDefinition.Paths == nil {
		properties.PartitionKeyDefinition = azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2}
	}
	_, err := database.CreateContainer(deadline(t), properties, nil)
	must(t, err)
	made, err := database.NewContainer(properties.ID)
	must(t, err)
	return made
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return text
}

func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

func key(value string) azcosmos.PartitionKey {
	return azcosmos.NewPartitionKeyString(value)
}

func create(t *testing.T, items *azcosmos.ContainerClient, item object) {
	t.Helper()
	_, err := items.CreateItem(deadline(t), key(item["pk"].(string)), encode(t, item), nil)
	must(t, err)
}

// All rows of a query, page by page. Every page but the last has a token with which another pager goes on.
func rows[T any](t *testing.T, items *azcosmos.ContainerClient, sql string, partition azcosmos.PartitionKey, options azcosmos.QueryOptions) []T {
	t.Helper()
	found := []T{}
	for {
		page, err := items.NewQueryItemsPager(sql, partition, &options).NextPage(deadline(t))
		must(t, err)
		for _, row := range page.Items {
			found = append(found, decode[T](t, row))
		}
		if page.ContinuationToken == nil || *page.ContinuationToken == "" {
			return found
		}
		options.ContinuationToken = page.ContinuationToken
	}
}
