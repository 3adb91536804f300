//! Items that are read across links, when nothing is under way: what follows them by a header or in a query is, to the last byte,
//! what point reads of the targets give.

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use super::super::client::{Client, json as parsed, shown};
use super::DATABASE;
use crate::interpreter;
use crate::model::ModelOracle;
use crate::model::random::KEYS;

/// Referrers of a link that are examined.
const REFERRERS_MAX: usize = 8;

pub struct FollowedReads<'a, 'c> {
    pub client: &'a mut Client<'c>,
    pub oracle: &'a ModelOracle,
    pub items: &'a [(String, interpreter::Json)],
    /// Targets that were compared.
    pub count: usize,
}

impl FollowedReads<'_, '_> {
    pub fn problems(&mut self, links: &[String]) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for link in links {
            let (from, _) = self.oracle.ends(link);
            let referrers = self.items.iter().filter(|(container, _)| *container == from);
            let with_references = referrers
                .filter(|(_, item)| !self.oracle.targets_in_order(link, item, self.items).is_empty());
            for (_, item) in with_references.take(REFERRERS_MAX) {
                problems.extend(self.problem(link, &from, item)?);
            }
        }
        Ok(problems)
    }

    fn problem(&mut self, link: &str, from: &str, item: &interpreter::Json) -> Result<Option<String>> {
        let (_, to) = self.oracle.ends(link);
        let mut targets = Vec::new();
        for target in self.oracle.targets_in_order(link, item, self.items) {
            self.count += 1;
            targets.push(target.map_or(Ok(Json::Null), |target| self.read(&to, target, ""))?);
        }
        let by_header = self.read(from, item, &format!("x-quire-follow: {link}\r\n"))?;
        let by_header = &by_header["_follow"][link];
        let by_query = self.query(link, from, item)?;
        let there: Vec<&Json> = targets.iter().filter(|target| !target.is_null()).collect();
        let (header_wanted, query_wanted) = match self.oracle.has_many(link) {
            true => (json!(targets), json!([there])),
            false => (json!(targets[0]), json!(there)),
        };
        let text = |json: &Json| json.to_string();
        for (how, found, wanted) in
            [("by header", by_header, &header_wanted), ("in a query", &by_query, &query_wanted)]
        {
            if text(found) != text(wanted) {
                let item = item.to_text();
                return Ok(Some(format!("{link} of {from} {item} followed {how}: {found}, not {wanted}")));
            }
        }
        Ok(None)
    }

    fn read(&mut self, container: &str, item: &interpreter::Json, headers: &str) -> Result<Json> {
        let link = format!("{DATABASE}/colls/{container}/docs/{}", id_of(item)?);
        let headers = format!("{}{headers}", key_header(container, item)?);
        let answer = self.client.send("GET", &format!("/{link}"), ("docs", &link), &headers, "");
        let answer = answer.context("no answer")?;
        ensure!(answer.status == 200, "an item of {container}: {}", shown(&answer));
        Ok(parsed(&answer))
    }

    fn query(&mut self, name: &str, container: &str, item: &interpreter::Json) -> Result<Json> {
        let link = format!("{DATABASE}/colls/{container}");
        let query = format!("SELECT VALUE FOLLOW(c, '{name}') FROM c WHERE c.id = @id");
        let body = json!({ "query": query, "parameters": [{ "name": "@id", "value": id_of(item)? }] });
        let headers = format!(
            "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n{}",
            key_header(container, item)?
        );
        let answer =
            self.client.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, &body.to_string());
        let answer = answer.context("no answer")?;
        ensure!(answer.status == 200, "a query with FOLLOW: {}", shown(&answer));
        Ok(parsed(&answer)["Documents"].take())
    }
}

fn id_of(item: &interpreter::Json) -> Result<String> {
    Ok(item.get("id").and_then(interpreter::Json::as_str).context("an id")?.to_owned())
}

fn key_header(container: &str, item: &interpreter::Json) -> Result<String> {
    let (_, paths) = KEYS.iter().find(|(own, _)| *own == container).context("a container")?;
    let level = |path: &&str| match item.get(path.trim_start_matches('/')) {
        Some(value) => value.to_text(),
        None => "{}".to_owned(),
    };
    let levels: Vec<String> = paths.iter().map(level).collect();
    Ok(format!("x-ms-documentdb-partitionkey: [{}]\r\n", levels.join(",")))
}
