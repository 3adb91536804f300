//! Every way to move money between the accounts of a bank, and every way to add it up.
//!
//! A bank is a logical partition. In every other one accounts are closed and opened again.

use serde_json::{Value as Json, json};

use super::bank::BankRead;
use super::client::{Client, LogicalPartition, RequestOutcome, header, json as parsed};
use super::list_actions::Action;
use crate::http::Response;

pub const BANKS: u32 = 2;
const ACCOUNTS: u32 = 6;
const BALANCE: i64 = 100;
/// What each bank has.
pub const SUM: i64 = ACCOUNTS as i64 * BALANCE;

const fn action(weight: u32, run: fn(&mut Client<'_>)) -> Action {
    Action { weight, run }
}

pub const ACTIONS: &[Action] = &[
    action(3, transfer_by_procedure),
    action(2, reopen),
    action(2, transfer_by_patches),
    action(2, transfer_by_replaces),
    action(1, reserve),
    action(2, transfer_by_trigger),
    action(2, sum_by_procedure),
    action(2, sum_by_query),
    action(1, sum_by_batch),
];

/// The accounts of all banks, in one batch each.
pub fn open_banks(client: &mut Client<'_>) {
    for bank in 0..BANKS {
        let place = client.bank(bank);
        let accounts = (0..ACCOUNTS)
            .map(|number| json!({ "operationType": "Create", "resourceBody": account(&place.key, number) }));
        let request = client.batch(&place, &Json::Array(accounts.collect()));
        match client.send("opening a bank", &request) {
            RequestOutcome::Answered(answer) if answer.status == 200 => {}
            _ => client.add_unexpected(format!("bank {bank} cannot be opened")),
        }
    }
}

fn account(bank: &str, number: u32) -> Json {
    json!({ "id": id(number), "pk": bank, "kind": "account", "balance": BALANCE, "reserved": 0 })
}

fn id(account: u32) -> String {
    format!("account-{account}")
}

struct Transfer {
    bank: u32,
    place: LogicalPartition,
    from: u32,
    to: u32,
    amount: i64,
}

fn any_transfer(client: &mut Client<'_>) -> Transfer {
    let bank = client.random.below(BANKS);
    let from = client.random.below(ACCOUNTS);
    let to = (from + 1 + client.random.below(ACCOUNTS - 1)) % ACCOUNTS;
    Transfer { bank, place: client.bank(bank), from, to, amount: 1 + client.random.below(60) }
}

fn transfer_by_procedure(client: &mut Client<'_>) {
    let Transfer { place, from, to, amount, .. } = any_transfer(client);
    let request = client.procedure(&place, "transfer", &json!([place.key, from, to, amount, false]));
    client.send("transfer by procedure", &request);
}

/// Closes an account, or opens it again.
fn reopen(client: &mut Client<'_>) {
    let Transfer { bank, place, from, to, .. } = any_transfer(client);
    if has_closed_accounts(bank) {
        let request = client.procedure(&place, "transfer", &json!([place.key, from, to, 0, true]));
        client.send("account closed or opened", &request);
    }
}

fn has_closed_accounts(bank: u32) -> bool {
    bank % 2 == 1
}

fn transfer_by_patches(client: &mut Client<'_>) {
    let Transfer { place, from, to, amount, .. } = any_transfer(client);
    let take = json!({ "condition": format!("FROM c WHERE c.balance >= {amount}"),
        "operations": [{ "op": "incr", "path": "/balance", "value": -amount }] });
    let give = json!({ "operations": [{ "op": "incr", "path": "/balance", "value": amount }] });
    let operations = json!([
        { "operationType": "Patch", "id": id(from), "resourceBody": take },
        { "operationType": "Patch", "id": id(to), "resourceBody": give },
    ]);
    let request = client.batch(&place, &operations);
    client.send("transfer by patches", &request);
}

/// Two reads, and a batch that holds if neither account has changed since.
fn transfer_by_replaces(client: &mut Client<'_>) {
    let Transfer { place, from, to, amount, .. } = any_transfer(client);
    let Some((mut source, source_etag)) = read(client, &place, from) else { return };
    let Some((mut target, target_etag)) = read(client, &place, to) else { return };
    if balance(&source) < amount {
        return;
    }
    source["balance"] = json!(balance(&source) - amount);
    target["balance"] = json!(balance(&target) + amount);
    let operations = json!([
        { "operationType": "Replace", "id": id(from), "ifMatch": source_etag, "resourceBody": source },
        { "operationType": "Replace", "id": id(to), "ifMatch": target_etag, "resourceBody": target },
    ]);
    let request = client.batch(&place, &operations);
    client.send("transfer by replaces", &request);
}

/// Within one account, by a single replace.
fn reserve(client: &mut Client<'_>) {
    let Transfer { place, from, amount, .. } = any_transfer(client);
    let Some((mut account, etag)) = read(client, &place, from) else { return };
    let reserved = account["reserved"].as_i64().unwrap_or_default();
    let amount = if reserved > 0 { -reserved } else { amount.min(balance(&account)) };
    account["balance"] = json!(balance(&account) - amount);
    account["reserved"] = json!(reserved + amount);
    let headers = format!("if-match: {etag}\r\n");
    let request = client.on_item("PUT", &place, &id(from), &headers, Some(&account));
    client.send("reservation", &request);
}

/// A payment whose post-trigger moves the money.
fn transfer_by_trigger(client: &mut Client<'_>) {
    let Transfer { place, from, to, amount, .. } = any_transfer(client);
    let number = client.random.below(4);
    let payment = json!({ "id": format!("payment-{number}"), "pk": place.key, "kind": "payment", "from": from, "to": to, "amount": amount });
    let headers = "x-ms-documentdb-is-upsert: True\r\nx-ms-documentdb-post-trigger-include: pay\r\n";
    let request = client.on_items(&place, headers, &payment);
    client.send("payment with a post-trigger", &request);
}

fn balance(account: &Json) -> i64 {
    account["balance"].as_i64().unwrap_or_default()
}

fn read(client: &mut Client<'_>, place: &LogicalPartition, account: u32) -> Option<(Json, String)> {
    let request = client.on_item("GET", place, &id(account), "", None);
    match client.send("account read", &request) {
        RequestOutcome::Answered(answer) if answer.status == 200 => {
            let etag = header(&answer, "etag")?.to_owned();
            Some((parsed(&answer.body), etag))
        }
        _ => None,
    }
}

pub fn sum_by_procedure(client: &mut Client<'_>) {
    let bank = client.random.below(BANKS);
    let request = client.procedure(&client.bank(bank), "audit", &json!([]));
    if let Some(answer) = send_ok(client, "sum by procedure", &request) {
        let accounts = parsed(&answer.body);
        record_balances(client, "procedure", bank, accounts.as_array().into_iter().flatten());
    }
}

pub fn sum_by_query(client: &mut Client<'_>) {
    let bank = client.random.below(BANKS);
    sum_of(client, bank);
}

pub fn sum_of(client: &mut Client<'_>, bank: u32) {
    let text = "SELECT VALUE SUM(c.balance + c.reserved) FROM c WHERE c.kind = 'account'";
    let request = client.query(&client.bank(bank), text, &json!([]));
    let Some(answer) = send_ok(client, "sum by query", &request) else { return };
    if header(&answer, "x-ms-continuation").is_none() {
        let sum = parsed(&answer.body)["Documents"][0].as_i64().unwrap_or(i64::MIN);
        client.record.reads.push(BankRead { how: "query", bank, sum, lowest: None });
    }
}

fn sum_by_batch(client: &mut Client<'_>) {
    let bank = client.random.below(BANKS);
    if has_closed_accounts(bank) {
        return;
    }
    let reads = (0..ACCOUNTS).map(|number| json!({ "operationType": "Read", "id": id(number) }));
    let request = client.batch(&client.bank(bank), &Json::Array(reads.collect()));
    if let Some(answer) = send_ok(client, "sum by batch", &request) {
        let results = parsed(&answer.body);
        let accounts = results.as_array().into_iter().flatten().map(|result| &result["resourceBody"]);
        record_balances(client, "batch", bank, accounts);
    }
}

fn send_ok(client: &mut Client<'_>, how: &'static str, request: &[u8]) -> Option<Response> {
    match client.send(how, request) {
        RequestOutcome::Answered(answer) if answer.status == 200 => Some(answer),
        _ => None,
    }
}

fn record_balances<'j>(
    client: &mut Client<'_>,
    how: &'static str,
    bank: u32,
    accounts: impl Iterator<Item = &'j Json>,
) {
    let balances: Vec<(i64, i64)> = accounts
        .map(|account| (balance(account), account["reserved"].as_i64().unwrap_or_default()))
        .collect();
    let sum = balances.iter().map(|(balance, reserved)| balance + reserved).sum();
    let lowest = balances.iter().map(|(balance, reserved)| *balance.min(reserved)).min();
    client.record.reads.push(BankRead { how, bank, sum, lowest });
}
