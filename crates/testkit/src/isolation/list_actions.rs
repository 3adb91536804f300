//! Everything that appends to lists and reads them: procedures, batches, bulk, triggers, single writes, reads and queries.
//!
//! A transaction is recorded with what the protocol makes one: a read and a replace with `If-Match` are, a read and
//! a replace without it are not. [`BROKEN`] claims that they are.

use serde_json::{Value as Json, json};

use super::client::{Client, RequestOutcome, header, json as parsed};
use super::history::{ListId, ListOperation, TransactionOutcome, Value};

pub struct Action {
    /// How often, to the others.
    pub weight: u32,
    pub run: fn(&mut Client<'_>),
}

const fn action(weight: u32, run: fn(&mut Client<'_>)) -> Action {
    Action { weight, run }
}

pub const ACTIONS: &[Action] = &[
    action(8, procedure),
    action(3, procedure_that_reads),
    action(6, batch),
    action(2, batch_that_creates),
    action(2, bulk),
    action(4, patch),
    action(4, replace_if_match),
    action(3, replace_with_pre_trigger),
    action(3, create_with_post_trigger),
    action(2, read),
    action(3, query),
];

/// With transactions over several partition keys and containers, where the server allows them.
pub const ACROSS: &[Action] = &[action(8, across)];

/// A client that takes reading and replacing for a transaction.
pub const BROKEN: &[Action] = &[action(1, replace_without_condition)];

pub fn id(list: ListId) -> String {
    format!("list-{}", list.number)
}

fn item(client: &Client<'_>, list: ListId, values: &[Value]) -> Json {
    json!({ "id": id(list), "pk": client.place(list.partition).key, "number": list.number, "values": values })
}

pub fn values_of(values: &Json) -> Vec<Value> {
    let values = values.as_array().into_iter().flatten();
    values.map(|value| value.as_u64().unwrap_or_default() as Value).collect()
}

fn append(list: ListId, value: Value) -> ListOperation {
    ListOperation::Append { list, value }
}

fn read_of(list: ListId, values: &Json) -> ListOperation {
    ListOperation::Read { list, values: values_of(values) }
}

/// What a step of the procedure does.
enum ProcedureStep {
    Append(ListId, Value, &'static str),
    Read(ListId),
    /// All lists in a range, by the feed.
    Feed(u32, u32),
    /// The same by a query, which sees what was there when the transaction began.
    Query(u32, u32),
}

impl ProcedureStep {
    fn argument(&self) -> Json {
        match self {
            ProcedureStep::Append(list, value, how) => {
                json!({ "how": how, "list": list.number, "value": value })
            }
            ProcedureStep::Read(list) => json!({ "how": "read", "list": list.number }),
            ProcedureStep::Feed(first, end) => json!({ "how": "feed", "first": first, "end": end }),
            ProcedureStep::Query(first, end) => json!({ "how": "query", "first": first, "end": end }),
        }
    }

    fn appends(&self) -> Option<ListOperation> {
        match self {
            ProcedureStep::Append(list, value, _) => Some(append(*list, *value)),
            _ => None,
        }
    }

    fn operations(&self, partition: u32, seen: &Json) -> Vec<ListOperation> {
        match self {
            ProcedureStep::Append(list, value, _) => vec![read_of(*list, seen), append(*list, *value)],
            ProcedureStep::Read(list) => vec![read_of(*list, seen)],
            ProcedureStep::Feed(first, end) | ProcedureStep::Query(first, end) => (*first..*end)
                .zip(0..)
                .map(|(number, place): (u32, usize)| read_of(ListId { partition, number }, &seen[place]))
                .collect(),
        }
    }
}

fn procedure(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let steps = (0..1 + client.random.below(4)).map(|_| any_step(client, partition)).collect();
    let fail = client.random.one_in(12);
    run_steps(client, "procedure", partition, steps, fail);
}

fn procedure_that_reads(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let lists = client.lists(partition);
    let (first, end) = (lists.start, lists.end);
    let steps = match client.random.below(3) {
        0 => vec![ProcedureStep::Feed(first, end)],
        1 => vec![ProcedureStep::Query(first, end)],
        _ => (0..3).map(|_| ProcedureStep::Read(client.any_list(partition))).collect(),
    };
    run_steps(client, "reading procedure", partition, steps, false);
}

fn any_step(client: &mut Client<'_>, partition: u32) -> ProcedureStep {
    let list = client.any_list(partition);
    let lists = client.lists(partition);
    match client.random.below(12) {
        0..=3 => ProcedureStep::Append(list, client.new_value(partition), "replace"),
        4..=6 => ProcedureStep::Append(list, client.new_value(partition), "upsert"),
        7..=9 => ProcedureStep::Read(list),
        10 => ProcedureStep::Feed(lists.start, lists.end),
        _ => ProcedureStep::Query(lists.start, lists.end),
    }
}

fn run_steps(
    client: &mut Client<'_>,
    how: &'static str,
    partition: u32,
    steps: Vec<ProcedureStep>,
    fail: bool,
) {
    let place = client.place(partition);
    let arguments = json!([place.key, steps.iter().map(ProcedureStep::argument).collect::<Vec<_>>(), fail]);
    let request = client.procedure(&place, "append", &arguments);
    let appends = steps.iter().filter_map(ProcedureStep::appends).collect();
    client.transaction(how, &request, appends, |seen| {
        let of = |is_query: bool| {
            let steps = steps.iter().enumerate();
            let chosen = steps.filter(move |(_, step)| matches!(step, ProcedureStep::Query(..)) == is_query);
            chosen.flat_map(|(place, step)| step.operations(partition, &seen[place]))
        };
        of(true).chain(of(false)).collect()
    });
}

/// Appends by patch and reads, in any order; now and then the last operation fails.
fn batch(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let (mut operations, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..2 + client.random.below(3) {
        let list = client.any_list(partition);
        let value = (!client.random.one_in(3)).then(|| client.new_value(partition));
        operations.push(match value {
            Some(value) => patch_operation(list, value),
            None => json!({ "operationType": "Read", "id": id(list) }),
        });
        lists.push((list, value));
    }
    if client.random.one_in(12) {
        operations.push(json!({ "operationType": "Delete", "id": "nothing" }));
    }
    run_batch(client, "batch", partition, operations, &lists);
}

/// A list of its own, and an append to another one.
fn batch_that_creates(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let own = if client.random.one_in(2) { client.own_list(partition) } else { client.any_list(partition) };
    let other = client.any_list(partition);
    let (first, second) = (client.new_value(partition), client.new_value(partition));
    let create = json!({ "operationType": "Create", "resourceBody": item(client, own, &[first]) });
    let operations = vec![create, patch_operation(other, second)];
    run_batch(client, "creating batch", partition, operations, &[(own, Some(first)), (other, Some(second))]);
}

fn patch_operation(list: ListId, value: Value) -> Json {
    json!({ "operationType": "Patch", "id": id(list), "resourceBody": patch_body(value) })
}

fn patch_body(value: Value) -> Json {
    json!({ "operations": [{ "op": "add", "path": "/values/-", "value": value }] })
}

fn run_batch(
    client: &mut Client<'_>,
    how: &'static str,
    partition: u32,
    operations: Vec<Json>,
    lists: &[(ListId, Option<Value>)],
) {
    let request = client.batch(&client.place(partition), &Json::Array(operations));
    run_operations(client, how, &request, lists);
}

/// The answer, or a member of it, has a result for each operation.
fn run_operations(
    client: &mut Client<'_>,
    how: &'static str,
    request: &[u8],
    lists: &[(ListId, Option<Value>)],
) {
    let appends = lists.iter().filter_map(|(list, value)| Some(append(*list, (*value)?))).collect();
    client.transaction(how, request, appends, |answer| {
        let results = answer.get("results").unwrap_or(answer);
        let places = lists.iter().enumerate();
        places
            .flat_map(|(place, (list, value))| after(*list, *value, &results[place]["resourceBody"]))
            .collect()
    });
}

/// An append, where there was one, and the item as it was afterwards.
fn after(list: ListId, value: Option<Value>, item: &Json) -> Vec<ListOperation> {
    value.map(|value| append(list, value)).into_iter().chain([read_of(list, &item["values"])]).collect()
}

/// Appends and reads in any logical partitions of both containers.
fn across(client: &mut Client<'_>) {
    let (mut operations, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..2 + client.random.below(3) {
        let partition = client.any_partition();
        let list = client.any_list(partition);
        let value = (!client.random.one_in(3)).then(|| client.new_value(partition));
        let mut operation = match value {
            Some(value) => patch_operation(list, value),
            None => json!({ "operationType": "Read", "id": id(list) }),
        };
        let place = client.place(partition);
        operation["container"] = json!(place.container);
        operation["partitionKey"] = json!([place.key]);
        operations.push(operation);
        lists.push((list, value));
    }
    let request = client.across(&Json::Array(operations));
    run_operations(client, "transaction over partitions", &request, &lists);
}

/// Several appends in one request, each a transaction of its own. The partition is guessed, a wrong guess is refused.
fn bulk(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let place = client.place(partition);
    let lists: Vec<(ListId, Value)> =
        (0..3).map(|_| (client.any_list(partition), client.new_value(partition))).collect();
    let operations = lists.iter().map(|(list, value)| {
        let mut operation = patch_operation(*list, *value);
        operation["partitionKey"] = json!(format!("[\"{}\"]", place.key));
        operation
    });
    let operations = Json::Array(operations.collect());
    let request = client.bulk(place.container, &operations);
    let begun = client.begin();
    let reply = client.send("bulk", &request);
    let results = match &reply {
        RequestOutcome::Over => return,
        RequestOutcome::Cut => None,
        RequestOutcome::Answered(answer) => Some(parsed(&answer.body)),
    };
    for (place, (list, value)) in lists.into_iter().enumerate() {
        let result = results.as_ref().map(|results| &results[place]);
        let status = result.map(|result| result["statusCode"].as_u64().unwrap_or(0));
        let (outcome, operations) = match (status, result) {
            (Some(200), Some(result)) => {
                (TransactionOutcome::Committed, after(list, Some(value), &result["resourceBody"]))
            }
            (None, _) => (TransactionOutcome::Unknown, vec![append(list, value)]),
            _ => (TransactionOutcome::Aborted, vec![append(list, value)]),
        };
        client.finish("bulk operation", begun, outcome, operations);
    }
}

fn patch(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let (list, value) = (client.any_list(partition), client.new_value(partition));
    let request = client.on_item("PATCH", &client.place(partition), &id(list), "", Some(&patch_body(value)));
    client.transaction("patch", &request, vec![append(list, value)], |item| after(list, Some(value), item));
}

fn replace_if_match(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let list = client.any_list(partition);
    change(client, "replace", list, AppendCondition::Unchanged, None);
}

fn replace_with_pre_trigger(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let (list, also) = (client.any_list(partition), client.any_list(partition));
    if list != also {
        change(client, "replace with a pre-trigger", list, AppendCondition::Unchanged, Some(also));
    }
}

fn replace_without_condition(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let list = client.any_list(partition);
    change(client, "replace without a condition", list, AppendCondition::None, None);
}

#[derive(Clone, Copy, PartialEq)]
enum AppendCondition {
    Unchanged,
    None,
}

/// Reads a list and replaces it with one value more. A list that is not there is created.
fn change(
    client: &mut Client<'_>,
    how: &'static str,
    list: ListId,
    condition: AppendCondition,
    also: Option<ListId>,
) {
    let begun = client.begin();
    let Some((values, etag)) = read_list(client, list) else { return };
    let value = client.new_value(list.partition);
    let mut body = item(client, list, &[&values[..], &[value]].concat());
    let mut operations = vec![append(list, value)];
    let mut headers = String::new();
    if let Some(also) = also {
        let value = client.new_value(list.partition);
        body["also"] = json!({ "list": also.number, "value": value });
        headers.push_str("x-ms-documentdb-pre-trigger-include: also_before\r\n");
        operations.push(append(also, value));
    }
    let place = client.place(list.partition);
    let request = match &etag {
        Some(etag) => {
            if condition == AppendCondition::Unchanged {
                headers.push_str(&format!("if-match: {etag}\r\n"));
            }
            client.on_item("PUT", &place, &id(list), &headers, Some(&body))
        }
        None => client.on_items(&place, &headers, &body),
    };
    let outcome = match client.send(how, &request) {
        RequestOutcome::Over => return,
        RequestOutcome::Answered(answer) if answer.status < 300 => TransactionOutcome::Committed,
        RequestOutcome::Answered(answer) if answer.status < 500 || answer.status == 503 => {
            TransactionOutcome::Aborted
        }
        RequestOutcome::Answered(_) | RequestOutcome::Cut => TransactionOutcome::Unknown,
    };
    operations.insert(0, ListOperation::Read { list, values });
    client.finish(how, begun, outcome, operations);
}

/// The list and its ETag, recorded as a read; nothing if it cannot be read.
fn read_list(client: &mut Client<'_>, list: ListId) -> Option<(Vec<Value>, Option<String>)> {
    let begun = client.begin();
    let request = client.on_item("GET", &client.place(list.partition), &id(list), "", None);
    let RequestOutcome::Answered(answer) = client.send("read", &request) else { return None };
    let found = match answer.status {
        200 => (values_of(&parsed(&answer.body)["values"]), header(&answer, "etag").map(str::to_owned)),
        404 => (Vec::new(), None),
        _ => return None,
    };
    let operation = ListOperation::Read { list, values: found.0.clone() };
    client.finish("read", begun, TransactionOutcome::Committed, vec![operation]);
    Some(found)
}

fn read(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let list = client.any_list(partition);
    read_list(client, list);
}

/// A list of its own, while a post-trigger appends to another one; now and then the trigger fails afterwards.
fn create_with_post_trigger(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let (own, also) = (client.own_list(partition), client.any_list(partition));
    let (first, second) = (client.new_value(partition), client.new_value(partition));
    let fail = client.random.one_in(8);
    let mut body = item(client, own, &[first]);
    body["also"] = json!({ "list": also.number, "value": second, "fail": fail });
    let headers = "x-ms-documentdb-post-trigger-include: also_after\r\n";
    let request = client.on_items(&client.place(partition), headers, &body);
    let appends = vec![append(own, first), append(also, second)];
    client.transaction("create with a post-trigger", &request, appends, |answer| {
        vec![append(own, first), read_of(also, &answer["before"]), append(also, second)]
    });
}

/// All lists in use at one moment.
fn query(client: &mut Client<'_>) {
    let partition = client.any_partition();
    let lists = client.lists(partition);
    let text = "SELECT c.number, c[\"values\"] FROM c WHERE c.number >= @first AND c.number < @end";
    let parameters =
        json!([{ "name": "@first", "value": lists.start }, { "name": "@end", "value": lists.end }]);
    let request = client.query(&client.place(partition), text, &parameters);
    let begun = client.begin();
    let RequestOutcome::Answered(answer) = client.send("query", &request) else { return };
    if answer.status != 200 || header(&answer, "x-ms-continuation").is_some() {
        return;
    }
    let body = parsed(&answer.body);
    let rows = body["Documents"].as_array().cloned().unwrap_or_default();
    let operations = lists.map(|number| {
        let row = rows.iter().find(|row| row["number"].as_u64() == Some(u64::from(number)));
        read_of(ListId { partition, number }, row.map_or(&Json::Null, |row| &row["values"]))
    });
    client.finish("query", begun, TransactionOutcome::Committed, operations.collect());
}
