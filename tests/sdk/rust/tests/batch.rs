//! Transactional batches through the official Rust SDK.

use azure_data_cosmos::models::TransactionalBatch;
use sdk_rust::{client, container};
use serde_json::{json, Value};

fn codes(response: azure_data_cosmos::models::BatchResponse) -> Vec<u16> {
    let results = response.into_model().unwrap();
    results.results().iter().map(|result| result.status_code()).collect()
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let client = client().await;
    let (database, items) = container(&client).await;
    let batch = TransactionalBatch::new("a")
        .create_item(json!({"id": "1", "pk": "a", "n": 1}))
        .unwrap()
        .upsert_item(json!({"id": "2", "pk": "a"}), None)
        .unwrap()
        .replace_item("1", json!({"id": "1", "pk": "a", "n": 2}), None)
        .unwrap()
        .read_item("1", None)
        .delete_item("2", None);
    let done = items.execute_transactional_batch(batch, None).await.unwrap();
    assert!(done.headers().request_charge().is_some());
    let done = done.into_model().unwrap();
    let read: Value = done.results()[3].into_model().unwrap().unwrap();
    assert_eq!(read["n"], 2);
    let statuses: Vec<u16> = done.results().iter().map(|result| result.status_code()).collect();
    assert_eq!(statuses, [201, 201, 200, 200, 204]);
    assert!(done.results()[0].etag().is_some() && done.results()[0].request_charge() > Some(5.0));

    let failing = TransactionalBatch::new("a")
        .create_item(json!({"id": "3", "pk": "a"}))
        .unwrap()
        .create_item(json!({"id": "1", "pk": "a"}))
        .unwrap()
        .delete_item("1", None);
    let failed = items.execute_transactional_batch(failing, None).await.unwrap();
    assert_eq!(codes(failed), [424, 409, 424]);
    let missing = items.read_item("a", "3", None).await.unwrap_err();
    assert_eq!(u16::from(missing.status().status_code()), 404);
    database.delete(None).await.unwrap();
}
