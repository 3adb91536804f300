//! A client of the live server named by `QUIRE_ENDPOINT`, for the tests beside this file.

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::time::{OffsetDateTime, to_rfc7231};
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};

const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

fn endpoint() -> String {
    std::env::var("QUIRE_ENDPOINT").expect("QUIRE_ENDPOINT names the server")
}

fn key() -> Secret {
    std::env::var("QUIRE_KEY").unwrap_or_else(|_| WELL_KNOWN_KEY.to_owned()).into()
}

pub async fn client() -> CosmosClient {
    let endpoint: AccountEndpoint = endpoint().parse().expect("an endpoint");
    let account = AccountReference::with_authentication_key(endpoint, key());
    CosmosClient::builder().build(account, RoutingStrategy::ProximityTo("South Central US".into())).await.expect("a client")
}

pub fn name(prefix: &str) -> String {
    format!("{prefix}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
}

/// A fresh database with one container partitioned by `/pk`.
pub async fn container(client: &CosmosClient) -> (DatabaseClient, ContainerClient) {
    let id = name("rs");
    client.create_database(&id, None).await.expect("a database");
    let database = client.database_client(id);
    database.create_container(ContainerProperties::new("c", "/pk".into()), None).await.expect("a container");
    let container = database.container_client("c", None).await.expect("a container client");
    (database, container)
}

/// A request below `/_quire/`, which the SDK does not know.
pub async fn own_request(method: &str, path: &str, body: Option<&serde_json::Value>) -> serde_json::Value {
    let date = to_rfc7231(&OffsetDateTime::now_utc());
    let text = format!("{}\n_quire\n{path}\n{}\n\n", method.to_lowercase(), date.to_lowercase());
    let signature = hmac_sha256(&text, &key()).expect("a signature");
    let method = method.parse().expect("a verb");
    let mut request = reqwest::Client::new()
        .request(method, format!("{}/{path}", endpoint().trim_end_matches('/')))
        .header("authorization", percent_encoded(&format!("type=master&ver=1.0&sig={signature}")))
        .header("x-ms-date", date)
        .header("x-ms-version", "2020-07-15");
    if let Some(body) = body {
        request = request.body(body.to_string());
    }
    let answer = request.send().await.expect("an answer").error_for_status().expect("a good status");
    serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON")
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
