//! A client of the live server named by `QUIRE_ENDPOINT`, for the tests beside this file.

use azure_core::credentials::Secret;
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};

const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

pub async fn client() -> CosmosClient {
    let endpoint = std::env::var("QUIRE_ENDPOINT").expect("QUIRE_ENDPOINT names the server");
    let endpoint: AccountEndpoint = endpoint.parse().expect("an endpoint");
    let key = std::env::var("QUIRE_KEY").unwrap_or_else(|_| WELL_KNOWN_KEY.to_owned());
    let account = AccountReference::with_authentication_key(endpoint, Secret::from(key));
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
