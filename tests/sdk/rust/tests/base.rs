//! Databases, containers, items and queries through the official Rust SDK.

use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::{CreateContainerOptions, ItemWriteOptions, Precondition};
use azure_data_cosmos::Query;
use futures::TryStreamExt;
use sdk_rust::{client, container, name};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Person {
    id: String,
    pk: String,
    name: String,
    age: u32,
    tags: Vec<String>,
}

fn person(number: u32) -> Person {
    Person {
        id: number.to_string(),
        pk: format!("p{}", number % 4),
        name: format!("Ada \"the {number}th\" Ünï"),
        age: number,
        tags: vec!["a".into(), "b".into()],
    }
}

#[tokio::test]
async fn create_read_delete_items() {
    let client = client().await;
    let (database, items) = container(&client).await;
    let ada = person(1);
    let created = items.create_item(ada.pk.clone(), &ada.id, &ada, None).await.unwrap();
    assert!(created.headers().request_charge().is_some());
    let read = items.read_item(ada.pk.clone(), &ada.id, None).await.unwrap();
    let etag = read.headers().etag().unwrap().clone();
    assert_eq!(read.into_model::<Person>().unwrap(), ada);

    let older = Person { age: 37, ..ada.clone() };
    items.replace_item(ada.pk.clone(), &ada.id, &older, None).await.unwrap();
    let stale = ItemWriteOptions::default().with_precondition(Precondition::if_match(etag));
    let refused = items.replace_item(ada.pk.clone(), &ada.id, &ada, Some(stale)).await.unwrap_err();
    assert_eq!(u16::from(refused.status().status_code()), 412);

    items.upsert_item(ada.pk.clone(), &ada.id, &ada, None).await.unwrap();
    items.delete_item(ada.pk.clone(), &ada.id, None).await.unwrap();
    let gone = items.read_item(ada.pk.clone(), &ada.id, None).await.unwrap_err();
    assert_eq!(u16::from(gone.status().status_code()), 404);
    let twice = items.create_item(ada.pk.clone(), &ada.id, &ada, None).await;
    twice.unwrap();
    let conflict = items.create_item(ada.pk.clone(), &ada.id, &ada, None).await.unwrap_err();
    assert_eq!(u16::from(conflict.status().status_code()), 409);
    database.delete(None).await.unwrap();
}

#[tokio::test]
async fn every_kind_of_value_survives() {
    let client = client().await;
    let (database, items) = container(&client).await;
    let item = serde_json::json!({
        "id": "v", "pk": "a", "null": null, "yes": true, "no": false, "small": 7, "negative": -300, "wide": 70_000,
        "long": 9_007_199_254_740_993_i64, "huge": u64::MAX, "largest": i64::MAX, "real": 1.5, "tiny": 5e-324,
        "guid": "1f2e3d4c-0000-4000-8000-123456789abc", "hex": "deadbeef00", "date": "2026-11-15T20:30:00.0000000Z",
        "long text": "x".repeat(70_000), "unicode": "ß日😀", "empty": "", "list": [], "object": {}, "numbers": [1, 2, 3.5],
        "nested": [[1, 2], [3, 4], {"a": {"b": [null]}}],
    });
    items.create_item("a", "v", &item, None).await.unwrap();
    let read: serde_json::Value = items.read_item("a", "v", None).await.unwrap().into_model().unwrap();
    for (name, value) in item.as_object().unwrap() {
        assert_eq!(&read[name], value, "{name}");
    }
    database.delete(None).await.unwrap();
}

#[tokio::test]
async fn queries() {
    let client = client().await;
    let (database, items) = container(&client).await;
    for number in 0..20 {
        let person = person(number);
        items.create_item(person.pk.clone(), &person.id, &person, None).await.unwrap();
    }
    let query = Query::from("SELECT VALUE c.age FROM c WHERE c.age >= @low").with_parameter("@low", 12).unwrap();
    let found = items.query_items::<u32>(query, FeedScope::partition("p1"), None).await.unwrap();
    let mut found: Vec<u32> = found.try_collect().await.unwrap();
    found.sort_unstable();
    assert_eq!(found, [13, 17]);

    let everywhere = items.query_items::<Person>("SELECT * FROM c WHERE c.age < 6", FeedScope::full_container(), None).await.unwrap();
    let mut everywhere: Vec<Person> = everywhere.try_collect().await.unwrap();
    everywhere.sort_by_key(|person| person.age);
    assert_eq!(everywhere, (0..6).map(person).collect::<Vec<_>>());

    let youngest = "SELECT TOP 3 VALUE c.age FROM c WHERE c.age > 4 ORDER BY c.age";
    let youngest = items.query_items::<u32>(youngest, FeedScope::full_container(), None).await.unwrap();
    assert_eq!(youngest.try_collect::<Vec<u32>>().await.unwrap(), [5, 6, 7]);
    let oldest = "SELECT VALUE c.age FROM c ORDER BY c.age DESC OFFSET 2 LIMIT 3";
    let oldest = items.query_items::<u32>(oldest, FeedScope::full_container(), None).await.unwrap();
    assert_eq!(oldest.try_collect::<Vec<u32>>().await.unwrap(), [17, 16, 15]);

    let ranges = items.read_feed_ranges(None).await.unwrap();
    assert_eq!(ranges.len().to_string(), std::env::var("QUIRE_PARTITIONS").unwrap_or_else(|_| "1".into()));
    database.delete(None).await.unwrap();
}

#[tokio::test]
async fn resources_and_throughput() {
    let client = client().await;
    let id = name("rs");
    client.create_database(&id, None).await.unwrap();
    let listed = client.query_databases(Query::from("SELECT * FROM root r WHERE r.id = @id").with_parameter("@id", &id).unwrap(), None);
    let listed: Vec<_> = listed.await.unwrap().try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
    let database = client.database_client(id);
    let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(400));
    database.create_container(ContainerProperties::new("t", ("/a", "/b").into()), Some(options)).await.unwrap();
    let container = database.container_client("t", None).await.unwrap();
    let properties = container.read(None).await.unwrap().into_model().unwrap();
    assert_eq!(properties.id, "t");
    let throughput = container.read_throughput(None).await.unwrap().expect("an offer");
    assert_eq!(throughput.throughput(), Some(400));
    container.create_item(("x", 1), "1", &serde_json::json!({"id": "1", "a": "x", "b": 1}), None).await.unwrap();
    container.read_item(("x", 1), "1", None).await.unwrap();
    container.delete(None).await.unwrap();
    database.delete(None).await.unwrap();
}
