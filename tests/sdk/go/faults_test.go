// The client tries again what the server refuses by rule, and does nothing twice.
package quire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

type rule struct {
	ID    string `json:"id"`
	Fired int    `json:"fired"`
}

// A request that the SDK does not have, signed as it signs its own.
func admin(t *testing.T, method, path, body string) []byte {
	t.Helper()
	secret, err := base64.StdEncoding.DecodeString(wellKnownKey)
	must(t, err)
	date := time.Now().UTC().Format(http.TimeFormat)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s\n_quire\n%s\n%s\n\n", strings.ToLower(method), path, strings.ToLower(date))
	token := "type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	request, err := http.NewRequestWithContext(deadline(t), method, os.Getenv("QUIRE_ENDPOINT")+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("authorization", url.QueryEscape(token))
	request.Header.Set("x-ms-date", date)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return text
}

// A container and a rule that holds for it alone, until the test ends.
func faulty(t *testing.T, fault object) (*azcosmos.ContainerClient, string) {
	t.Helper()
	home := database(t, client(t))
	items := container(t, home, azcosmos.ContainerProperties{})
	create(t, items, object{"id": "1", "pk": "ada"})
	fault["database"], fault["container"] = home.ID(), items.ID()
	made := decode[rule](t, admin(t, "POST", "_quire/faults", string(encode(t, fault))))
	t.Cleanup(func() { admin(t, "DELETE", fmt.Sprintf("_quire/faults/%s", made.ID), "") })
	return items, made.ID
}

func fired(t *testing.T, id string) int {
	t.Helper()
	listed := decode[struct{ Faults []rule }](t, admin(t, "GET", "_quire/faults", ""))
	for _, found := range listed.Faults {
		if found.ID == id {
			return found.Fired
		}
	}
	t.Fatalf("no rule %s", id)
	return 0
}

func expectFired(t *testing.T, id string, expected int) {
	t.Helper()
	if count := fired(t, id); count != expected {
		t.Fatalf("the rule fired %d times, expected %d", count, expected)
	}
}

func read(t *testing.T, items *azcosmos.ContainerClient) error {
	t.Helper()
	_, err := items.ReadItem(deadline(t), key("ada"), "1", nil)
	return err
}

func TestThrottledWritesAreTriedAgain(t *testing.T) {
	items, id := faulty(t, object{"operations": []string{"create"}, "count": 3, "status": 429, "subStatus": 3200, "retryAfterMs": 20})
	create(t, items, object{"id": "2", "pk": "ada"})
	expectFired(t, id, 3)
}

func TestThrottledForTooLong(t *testing.T) {
	items, id := faulty(t, object{"operations": []string{"read"}, "resourceType": "docs", "status": 429, "subStatus": 3200, "retryAfterMs": 5})
	refused(t, read(t, items), http.StatusTooManyRequests)
	expectFired(t, id, 4)
}

func TestConnectionsThatAreCut(t *testing.T) {
	items, id := faulty(t, object{"operations": []string{"read"}, "resourceType": "docs", "count": 2, "cut": true})
	must(t, read(t, items))
	expectFired(t, id, 2)
}

func TestASessionThatIsBehind(t *testing.T) {
	items, id := faulty(t, object{"operations": []string{"read"}, "resourceType": "docs", "count": 1, "status": 404, "subStatus": 1002})
	must(t, read(t, items))
	expectFired(t, id, 1)
}
