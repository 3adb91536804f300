//! A model on the containers of the run: every list and every account belongs to the group of its partition key, which carries
//! their counts and sums, and whose name they carry. Groups are renamed while the others work.

use anyhow::{Result, ensure};
use serde_json::json;

use super::bank_actions::BANKS;
use super::client::{Client, DATABASE};
use super::list_actions::Action;
use crate::http::{Connection, Signer};
use crate::storm::declared::DeclaredModel;

/// Logical partitions of a round that have a group; in others nothing can be written.
const GROUPS: u32 = 120;

pub const MODEL: DeclaredModel = DeclaredModel {
    database: "isolation",
    containers: &[("lists", &["/pk"]), ("more", &["/pk"]), ("groups", &["/id"])],
    model: r#"{"version":1,"fanOutMax":5,
        "links":[{"name":"list-group","from":{"container":"lists","path":"/pk"},"to":{"container":"groups"},"integrity":"enforced"},
            {"name":"more-group","from":{"container":"more","path":"/pk"},"to":{"container":"groups"},"integrity":"enforced"}],
        "copies":[{"name":"list-name","link":"list-group","fields":{"groupName":"t.name"}},
            {"name":"more-name","link":"more-group","fields":{"groupName":"t.name"}}],
        "mirrors":[{"name":"ids","link":"list-group","into":"/ids","max":10000}],
        "rollups":[{"name":"count","link":"list-group","op":"count","into":"/count"},
            {"name":"more","link":"more-group","op":"count","into":"/more"},
            {"name":"money","link":"list-group","op":"sum","value":"r.balance + r.reserved","into":"/money"},
            {"name":"more-money","link":"more-group","op":"sum","value":"r.balance + r.reserved","into":"/moreMoney"},
            {"name":"last","link":"list-group","op":"max","value":"r.number","into":"/stats/last"},
            {"name":"first","link":"more-group","op":"min","value":"r.number","into":"/stats/first"}]}"#,
};

pub const ACTIONS: &[&Action] = &[&Action { weight: 1, run: rename }];

pub fn set_up(port: u16) -> Result<()> {
    let key = json!({ "paths": ["/id"], "kind": "Hash", "version": 2 });
    let body = json!({ "id": "groups", "partitionKey": key }).to_string();
    let path = format!("/{DATABASE}/colls");
    let request = Signer::well_known().request("POST", &path, ("colls", DATABASE), "", body.as_bytes());
    let made = Connection::open(port)?.exchange(&request)?;
    ensure!(made.status == 201, "{}", String::from_utf8_lossy(&made.body));
    MODEL.put(port)
}

fn group(round: u32, number: u32) -> String {
    match number.checked_sub(BANKS) {
        None => format!("r{round}-b{number}"),
        Some(partition) => format!("r{round}-p{partition}"),
    }
}

/// Before the first write.
pub fn open_groups(round: u32, port: u16) -> Result<()> {
    for number in 0..GROUPS {
        let id = group(round, number);
        MODEL.upsert(port, "groups", &id, &json!({ "id": id, "name": "new" }))?;
    }
    Ok(())
}

/// One of the first groups gets another name: its lists or accounts do, too.
fn rename(client: &mut Client<'_>) {
    let number = client.random.below(BANKS + 6);
    let id = group(client.shared.round, number);
    let link = format!("{DATABASE}/colls/groups/docs/{id}");
    let headers = format!("x-ms-documentdb-partitionkey: [{id:?}]\r\n");
    let name = format!("Name {}", client.random.below(100));
    let patch = json!({ "operations": [{ "op": "set", "path": "/name", "value": name }] }).to_string();
    let request =
        client.signer.request("PATCH", &format!("/{link}"), ("docs", &link), &headers, patch.as_bytes());
    client.send("renaming a group", &request);
}
