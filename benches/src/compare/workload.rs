//! The workloads: what is done on each side, and the ratio to PostgreSQL that is to be reached.

use crate::people::{RARE_WORDS, SCORES, SKUS, TAGS, TEAMS};

pub struct Workload {
    /// As it is named on the command line.
    pub name: &'static str,
    pub title: &'static str,
    pub operation: Operation,
    /// The rate to reach at 1 and at 16 connections, to PostgreSQL's.
    pub targets: [f64; 2],
}

pub enum Operation {
    PointRead,
    Query(Query),
    /// Half point reads, half updates of one property, items drawn by Zipf's law.
    YcsbA,
    /// 19 of 20 are scans of 1 to 100 items in the order of their ids, the others creates.
    YcsbE,
    Patch,
    Replace,
    Create,
    Delete,
    /// A count rises and an item is created, in one transactional batch.
    Batch,
    /// The same in a stored procedure.
    Procedure,
}

pub struct Query {
    pub ours: &'static str,
    pub theirs: &'static str,
    /// The parameter is drawn below this; 0: there is none.
    pub parameter_below: u64,
    /// What `@p` is, from the number drawn; theirs builds the same from `:p`.
    pub parameter: fn(u64) -> String,
    /// What the answers are compared by.
    pub compared: ComparedRows,
}

pub enum ComparedRows {
    /// Items, by their ids.
    Ids,
    /// Whole rows.
    Rows,
}

/// Those that write come last: they change what the queries run over.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "point-read",
        title: "point read",
        operation: Operation::PointRead,
        targets: [1.2, 2.0],
    },
    Workload {
        name: "equality",
        title: "equality, ~10 items",
        operation: Operation::Query(Query {
            ours: "SELECT * FROM c WHERE c.team = @p",
            theirs: "SELECT body FROM items WHERE body->>'team' = 'team-' || (:p)::int",
            parameter_below: TEAMS,
            parameter: |team| format!("\"team-{team}\""),
            compared: ComparedRows::Ids,
        }),
        targets: [1.3, 2.0],
    },
    Workload {
        name: "range",
        title: "range + ORDER BY + TOP 20",
        operation: Operation::Query(Query {
            ours: "SELECT TOP 20 * FROM c WHERE c.score >= @p ORDER BY c.score",
            theirs: "SELECT body FROM items WHERE (body->>'score')::float8 >= (:p)::float8 \
                     ORDER BY (body->>'score')::float8 LIMIT 20",
            parameter_below: SCORES,
            parameter: |score| score.to_string(),
            compared: ComparedRows::Ids,
        }),
        targets: [1.3, 2.0],
    },
    Workload {
        name: "array-element",
        title: "array element",
        operation: Operation::Query(Query {
            ours: "SELECT c.id, c.name FROM c WHERE ARRAY_CONTAINS(c.tags, @p)",
            theirs: "SELECT jsonb_build_object('id', body->'id', 'name', body->'name') FROM items \
                     WHERE body->'tags' @> to_jsonb('tag-' || (:p)::int)",
            parameter_below: TAGS,
            parameter: |tag| format!("\"tag-{tag}\""),
            compared: ComparedRows::Rows,
        }),
        targets: [1.3, 2.0],
    },
    Workload {
        name: "join",
        title: "JOIN over array",
        operation: Operation::Query(Query {
            ours: "SELECT c.id, o.quantity FROM c JOIN o IN c.orders WHERE o.sku = @p",
            theirs: "SELECT jsonb_build_object('id', body->'id', 'quantity', o->'quantity') \
                     FROM items, jsonb_array_elements(body->'orders') o \
                     WHERE body->'orders' @> jsonb_build_array(jsonb_build_object('sku', 'sku-' || (:p)::int)) \
                     AND o->>'sku' = 'sku-' || (:p)::int",
            parameter_below: SKUS,
            parameter: |sku| format!("\"sku-{sku}\""),
            compared: ComparedRows::Rows,
        }),
        targets: [2.5, 4.0],
    },
    Workload {
        name: "group-some",
        title: "GROUP BY over 1 %",
        operation: Operation::Query(Query {
            ours: "SELECT c.city, COUNT(1) AS people, AVG(c.age) AS age FROM c \
                   WHERE c.score >= @p AND c.score < @p + 10000 GROUP BY c.city",
            theirs: "SELECT jsonb_build_object('city', city, 'people', n, 'age', age) FROM (\
                     SELECT body->>'city' AS city, count(*) AS n, avg((body->>'age')::float8) AS age FROM items \
                     WHERE (body->>'score')::float8 >= (:p)::float8 AND (body->>'score')::float8 < (:p)::float8 + 10000 \
                     GROUP BY 1) AS groups",
            parameter_below: SCORES - 10_000,
            parameter: |score| score.to_string(),
            compared: ComparedRows::Rows,
        }),
        targets: [2.0, 2.5],
    },
    Workload {
        name: "group-all",
        title: "GROUP BY over all",
        operation: Operation::Query(Query {
            ours: "SELECT c.city, COUNT(1) AS people, AVG(c.age) AS age FROM c GROUP BY c.city",
            theirs: "SELECT jsonb_build_object('city', city, 'people', n, 'age', age) FROM (\
                     SELECT body->>'city' AS city, count(*) AS n, avg((body->>'age')::float8) AS age FROM items \
                     GROUP BY 1) AS groups",
            parameter_below: 0,
            parameter: |_| "0".to_owned(),
            compared: ComparedRows::Rows,
        }),
        targets: [5.0, 8.0],
    },
    Workload {
        name: "contains",
        title: "CONTAINS over all",
        operation: Operation::Query(Query {
            ours: "SELECT c.id, c.name FROM c WHERE CONTAINS(c.bio, @p)",
            theirs: "SELECT jsonb_build_object('id', body->'id', 'name', body->'name') FROM items \
                     WHERE strpos(body->>'bio', 'rare' || (:p)::int || ' ') > 0",
            parameter_below: RARE_WORDS,
            parameter: |word| format!("\"rare{word} \""),
            compared: ComparedRows::Rows,
        }),
        targets: [4.0, 6.0],
    },
    Workload { name: "ycsb-e", title: "YCSB E", operation: Operation::YcsbE, targets: [1.3, 2.2] },
    Workload { name: "ycsb-a", title: "YCSB A", operation: Operation::YcsbA, targets: [1.2, 1.8] },
    Workload { name: "patch", title: "patch", operation: Operation::Patch, targets: [1.1, 1.6] },
    Workload { name: "replace", title: "replace", operation: Operation::Replace, targets: [1.1, 1.6] },
    Workload {
        name: "create",
        title: "create, every path indexed",
        operation: Operation::Create,
        targets: [1.1, 1.6],
    },
    Workload { name: "delete", title: "delete", operation: Operation::Delete, targets: [1.1, 1.6] },
    Workload { name: "batch", title: "batch of two", operation: Operation::Batch, targets: [2.0, 2.5] },
    Workload {
        name: "procedure",
        title: "procedure, two items",
        operation: Operation::Procedure,
        targets: [1.0, 1.3],
    },
];

/// Those that are named, or all.
pub fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    names.iter().map(|name| named(name)).collect()
}

pub fn named(name: &str) -> anyhow::Result<&'static Workload> {
    let all = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| anyhow::anyhow!("there is no workload {name:?}, only {}", all()))
}
