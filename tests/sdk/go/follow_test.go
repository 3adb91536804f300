package quire

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

const followModel = `{"version": 1, "links": [
	{"name": "book-authors", "from": {"container": "books", "path": "/authors/*/id"}, "to": {"container": "authors"}},
	{"name": "book-publisher", "from": {"container": "books", "path": "/pub/id"},
	 "to": {"container": "publishers", "partitionKey": [{"path": "/pub/region"}]}},
	{"name": "sequel", "from": {"container": "books", "path": "/sequelOf"},
	 "to": {"container": "books", "key": "/isbn", "partitionKey": "lookup"}}]}`

func waitUntilActive(t *testing.T, database string) {
	t.Helper()
	type status struct {
		Declarations []struct{ Name, State string }
	}
	for bounded := deadline(t); ; time.Sleep(50 * time.Millisecond) {
		now := decode[status](t, admin(t, http.MethodGet, "_quire/dbs/"+database+"/model/status", ""))
		pending := slices.ContainsFunc(now.Declarations, func(one struct{ Name, State string }) bool { return one.State != "active" })
		if !pending {
			return
		}
		must(t, bounded.Err())
	}
}

type library struct {
	client                     *azcosmos.Client
	database                   string
	books, authors, publishers *azcosmos.ContainerClient
}

// 60 books of 9 authors and 4 publishers, some of which are not there.
func filledLibrary(t *testing.T) library {
	t.Helper()
	client := client(t)
	database := database(t, client)
	made := func(id, path string) *azcosmos.ContainerClient {
		keys := azcosmos.PartitionKeyDefinition{Paths: []string{path}, Version: 2}
		return container(t, database, azcosmos.ContainerProperties{ID: id, PartitionKeyDefinition: keys})
	}
	library := library{client, database.ID(), made("books", "/shelf"), made("authors", "/id"), made("publishers", "/region")}
	admin(t, http.MethodPut, "_quire/dbs/"+database.ID()+"/model", followModel)
	add := func(items *azcosmos.ContainerClient, partition string, item object) {
		_, err := items.CreateItem(deadline(t), key(partition), encode(t, item), nil)
		must(t, err)
	}
	for n := range 9 {
		id := fmt.Sprintf("a%d", n)
		add(library.authors, id, object{"id": id, "name": fmt.Sprintf("Author %d", n), "country": []string{"UK", "NZ"}[n%2]})
	}
	for n := range 4 {
		region := fmt.Sprintf("r%d", n%2)
		add(library.publishers, region, object{"id": fmt.Sprintf("p%d", n), "region": region, "name": fmt.Sprintf("Publisher %d", n)})
	}
	for n := range 60 {
		shelf := fmt.Sprintf("s%d", n%4)
		add(library.books, shelf, object{
			"id": fmt.Sprintf("b%02d", n), "shelf": shelf, "year": 1900 + n%17, "isbn": fmt.Sprintf("i%d", n), "sequelOf": fmt.Sprintf("i%d", n/2+1),
			"authors": []object{{"id": fmt.Sprintf("a%d", n%9)}, {"id": fmt.Sprintf("a%d", n%11)}},
			"pub":     object{"id": fmt.Sprintf("p%d", n%5), "region": fmt.Sprintf("r%d", n%2)},
		})
	}
	waitUntilActive(t, database.ID())
	return library
}

func everywhere(t *testing.T, items *azcosmos.ContainerClient, sql string, size int32) []object {
	t.Helper()
	found := rows[object](t, items, sql, azcosmos.NewPartitionKey(), azcosmos.QueryOptions{PageSizeHint: size})
	slices.SortFunc(found, func(a, b object) int { return cmp.Compare(fmt.Sprint(a["id"]), fmt.Sprint(b["id"])) })
	return found
}

// Nil for an item that is not there.
func readItem(t *testing.T, items *azcosmos.ContainerClient, id, partition any) any {
	t.Helper()
	read, err := items.ReadItem(deadline(t), key(partition.(string)), id.(string), nil)
	if err != nil {
		refused(t, err, http.StatusNotFound)
		return nil
	}
	return decode[any](t, read.Value)
}

func (library library) authorsOf(t *testing.T, book object) []any {
	t.Helper()
	found := []any{}
	for _, reference := range book["authors"].([]any) {
		id := reference.(map[string]any)["id"]
		if author := readItem(t, library.authors, id, id); author != nil {
			found = append(found, author)
		}
	}
	return found
}

func same(t *testing.T, what string, got, expected any) {
	t.Helper()
	if !reflect.DeepEqual(got, expected) {
		t.Fatalf("%s: got %v, expected %v", what, got, expected)
	}
}

func TestFollowIsTheSecondRoundTrip(t *testing.T) {
	library := filledLibrary(t)
	own := everywhere(t, library.books, "SELECT * FROM b", 0)
	same(t, "books", len(own), 60)
	for _, size := range []int32{0, 1, 7} {
		many := everywhere(t, library.books, "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b", size)
		one := everywhere(t, library.books, "SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b", size)
		missing := 0
		for at, book := range own {
			same(t, "authors", many[at]["a"], any(library.authorsOf(t, book)))
			reference := book["pub"].(map[string]any)
			same(t, "publisher", one[at]["p"], readItem(t, library.publishers, reference["id"], reference["region"]))
			if one[at]["p"] == nil {
				missing++
			}
		}
		if missing == 0 || missing == len(own) {
			t.Fatalf("%d publishers are missing", missing)
		}
	}
}

func TestFollowInJoinsOrdersAndElements(t *testing.T) {
	library := filledLibrary(t)
	own := everywhere(t, library.books, "SELECT * FROM b", 0)
	expected := []string{}
	for _, book := range own {
		for _, author := range library.authorsOf(t, book) {
			author := author.(map[string]any)
			if book["year"].(float64) > 1905 && author["country"] == "NZ" {
				expected = append(expected, fmt.Sprint(book["id"], author["name"]))
			}
		}
	}
	sql := "SELECT b.id, a.name FROM b JOIN a IN FOLLOW(b, 'book-authors') WHERE a.country = 'NZ' AND b.year > 1905"
	found := []string{}
	for _, row := range everywhere(t, library.books, sql, 7) {
		found = append(found, fmt.Sprint(row["id"], row["name"]))
	}
	slices.Sort(expected)
	slices.Sort(found)
	equal(t, "JOIN", found, expected)

	// This client leaves orders of all keys to the service, which leaves them to clients.
	sql = "SELECT b.id, b.year, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year DESC"
	ordered := rows[object](t, library.books, sql, key("s1"), azcosmos.QueryOptions{PageSizeHint: 4})
	same(t, "books of a shelf", len(ordered), 15)
	for at, row := range ordered {
		if at > 0 && row["year"].(float64) > ordered[at-1]["year"].(float64) {
			t.Fatalf("row %d is not in order", at)
		}
		book := own[slices.IndexFunc(own, func(book object) bool { return book["id"] == row["id"] })]
		same(t, "authors", row["a"], any(library.authorsOf(t, book)))
	}

	sql = "SELECT e.id AS e, FOLLOW(e, 'book-authors') AS a FROM b JOIN e IN b.authors"
	elements := everywhere(t, library.books, sql, 0)
	same(t, "elements", len(elements), 120)
	for _, row := range elements {
		same(t, "author", row["a"], readItem(t, library.authors, row["e"], row["e"]))
	}
}

func TestReferrers(t *testing.T) {
	library := filledLibrary(t)
	own := everywhere(t, library.books, "SELECT * FROM b", 0)
	found := everywhere(t, library.authors, "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a", 2)
	same(t, "authors", len(found), 9)
	for _, row := range found {
		expected := []any{}
		for _, book := range own {
			names := func(reference any) bool { return reference.(map[string]any)["id"] == row["id"] }
			if slices.ContainsFunc(book["authors"].([]any), names) {
				expected = append(expected, any(book))
			}
		}
		same(t, fmt.Sprint(row["id"]), row["books"], any(expected))
	}
	for _, row := range everywhere(t, library.books, "SELECT b.sequelOf, FOLLOW(b, 'sequel') AS first FROM b", 0) {
		var expected any
		if at := slices.IndexFunc(own, func(book object) bool { return book["isbn"] == row["sequelOf"] }); at >= 0 {
			expected = any(own[at])
		}
		same(t, "sequel", row["first"], expected)
	}
}

// Adds a header to every request of a client.
type followHeader string

func (chains followHeader) Do(request *policy.Request) (*http.Response, error) {
	request.Raw().Header.Set("x-quire-follow", string(chains))
	return request.Next()
}

func TestReadsAndRowsWithTheHeader(t *testing.T) {
	library := filledLibrary(t)
	options := azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{PerCallPolicies: []policy.Policy{followHeader("book-authors, ~sequel")}}}
	following, err := azcosmos.NewClientFromConnectionString(
		"AccountEndpoint="+os.Getenv("QUIRE_ENDPOINT")+";AccountKey="+wellKnownKey+";", &options)
	must(t, err)
	t.Cleanup(following.Close)
	books, err := following.NewContainer(library.database, "books")
	must(t, err)
	read, err := books.ReadItem(context.Background(), key("s2"), "b10", nil)
	must(t, err)
	same(t, "followed", read.RawResponse.Header.Get("x-quire-followed"), "3")
	type named struct {
		Follow map[string][]*struct{ ID string } `json:"_follow"`
	}
	check := func(item named) {
		authors, sequels := item.Follow["book-authors"], item.Follow["~sequel"]
		// 10 % 9 is there, 10 % 11 is not.
		if len(authors) != 2 || authors[0].ID != "a1" || authors[1] != nil {
			t.Fatalf("%v", authors)
		}
		if len(sequels) != 2 || sequels[0].ID != "b18" || sequels[1].ID != "b19" {
			t.Fatalf("%v", sequels)
		}
	}
	check(decode[named](t, read.Value))
	found := rows[named](t, books, "SELECT * FROM b WHERE b.id = 'b10'", azcosmos.NewPartitionKey(), azcosmos.QueryOptions{})
	same(t, "rows", len(found), 1)
	check(found[0])
}

func TestLinksThatCannotBeFollowedAreRefused(t *testing.T) {
	library := filledLibrary(t)
	for sql, code := range map[string]string{
		"SELECT FOLLOW(b, 'nothing') AS a FROM b":              "SC3101",
		"SELECT FOLLOW(b.authors, 'book-authors') AS a FROM b": "SC3102",
	} {
		_, err := library.books.NewQueryItemsPager(sql, key("s1"), nil).NextPage(deadline(t))
		if answer := refused(t, err, http.StatusBadRequest); !strings.Contains(answer.Error(), code) {
			t.Fatal(answer)
		}
	}
}
