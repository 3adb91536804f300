//! The queries, once in our language and once in PostgreSQL's, with the indexes a competent user declares there.

use super::people::{CITIES, PEOPLE, RARE_WORDS, SCORES, SKUS, TAGS, TEAMS};

/// Nobody declares an index on our side.
pub const POSTGRES_INDEXES: &[&str] = &[
    "CREATE INDEX team ON items ((body->>'team'))",
    "CREATE INDEX score ON items (((body->>'score')::float8))",
    "CREATE INDEX tags ON items USING gin ((body->'tags') jsonb_path_ops)",
    "CREATE INDEX orders ON items USING gin ((body->'orders') jsonb_path_ops)",
];

pub struct Workload {
    pub name: &'static str,
    pub ours: &'static str,
    pub theirs: &'static str,
    /// The parameter is drawn below this; 0: there is none.
    pub parameter_below: u64,
    /// What `@p` is, from the number drawn; theirs builds the same from `:p`.
    pub parameter: fn(u64) -> String,
    /// What the answers are compared by.
    pub compared: Compared,
    /// At least, to PostgreSQL, at 1 and at 16 connections.
    pub bounds: (f64, f64),
}

pub enum Compared {
    /// Items, by their ids.
    Ids,
    /// Whole rows.
    Rows,
}

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "equality, ~10 items",
        ours: "SELECT * FROM c WHERE c.team = @p",
        theirs: "SELECT body FROM items WHERE body->>'team' = 'team-' || (:p)::int",
        parameter_below: TEAMS,
        parameter: |team| format!("\"team-{team}\""),
        compared: Compared::Ids,
        bounds: (1.2, 2.0),
    },
    Workload {
        name: "range + ORDER BY + TOP 20",
        ours: "SELECT TOP 20 * FROM c WHERE c.score >= @p ORDER BY c.score",
        theirs: "SELECT body FROM items WHERE (body->>'score')::float8 >= (:p)::float8 \
                 ORDER BY (body->>'score')::float8 LIMIT 20",
        parameter_below: SCORES,
        parameter: |score| score.to_string(),
        compared: Compared::Ids,
        bounds: (1.2, 2.0),
    },
    Workload {
        name: "array element",
        ours: "SELECT c.id, c.name FROM c WHERE ARRAY_CONTAINS(c.tags, @p)",
        theirs: "SELECT jsonb_build_object('id', body->'id', 'name', body->'name') FROM items \
                 WHERE body->'tags' @> to_jsonb('tag-' || (:p)::int)",
        parameter_below: TAGS,
        parameter: |tag| format!("\"tag-{tag}\""),
        compared: Compared::Rows,
        bounds: (1.2, 2.0),
    },
    Workload {
        name: "JOIN over an array with filter",
        ours: "SELECT c.id, o.quantity FROM c JOIN o IN c.orders WHERE o.sku = @p",
        theirs: "SELECT jsonb_build_object('id', body->'id', 'quantity', o->'quantity') \
                 FROM items, jsonb_array_elements(body->'orders') o \
                 WHERE body->'orders' @> jsonb_build_array(jsonb_build_object('sku', 'sku-' || (:p)::int)) \
                 AND o->>'sku' = 'sku-' || (:p)::int",
        parameter_below: SKUS,
        parameter: |sku| format!("\"sku-{sku}\""),
        compared: Compared::Rows,
        bounds: (2.0, 3.0),
    },
    Workload {
        name: "GROUP BY over 1 %",
        ours: "SELECT c.city, COUNT(1) AS people, AVG(c.age) AS age FROM c \
               WHERE c.score >= @p AND c.score < @p + 10000 GROUP BY c.city",
        theirs: "SELECT jsonb_build_object('city', city, 'people', n, 'age', age) FROM (\
                 SELECT body->>'city' AS city, count(*) AS n, avg((body->>'age')::float8) AS age FROM items \
                 WHERE (body->>'score')::float8 >= (:p)::float8 AND (body->>'score')::float8 < (:p)::float8 + 10000 \
                 GROUP BY 1) AS groups",
        parameter_below: SCORES - 10_000,
        parameter: |score| score.to_string(),
        compared: Compared::Rows,
        bounds: (1.5, 2.0),
    },
    Workload {
        name: "GROUP BY over all",
        ours: "SELECT c.city, COUNT(1) AS people, AVG(c.age) AS age FROM c GROUP BY c.city",
        theirs: "SELECT jsonb_build_object('city', city, 'people', n, 'age', age) FROM (\
                 SELECT body->>'city' AS city, count(*) AS n, avg((body->>'age')::float8) AS age FROM items \
                 GROUP BY 1) AS groups",
        parameter_below: 0,
        parameter: |_| "0".to_owned(),
        compared: Compared::Rows,
        bounds: (2.0, 3.0),
    },
    Workload {
        name: "CONTAINS over all",
        ours: "SELECT c.id, c.name FROM c WHERE CONTAINS(c.bio, @p)",
        theirs: "SELECT jsonb_build_object('id', body->'id', 'name', body->'name') FROM items \
                 WHERE strpos(body->>'bio', 'rare' || (:p)::int || ' ') > 0",
        parameter_below: RARE_WORDS,
        parameter: |word| format!("\"rare{word} \""),
        compared: Compared::Rows,
        bounds: (2.0, 3.0),
    },
    Workload {
        name: "short scans",
        ours: "SELECT TOP 50 * FROM c WHERE c.id >= @p ORDER BY c.id",
        theirs: "SELECT body FROM items WHERE id >= 'person-' || lpad((:p)::text, 8, '0') ORDER BY id LIMIT 50",
        parameter_below: PEOPLE,
        parameter: |number| format!("\"person-{number:08}\""),
        compared: Compared::Ids,
        bounds: (1.2, 2.0),
    },
];

pub const CREATE: &str = "create with every path indexed (PostgreSQL: four indexes)";
pub const CREATE_BOUNDS: (f64, f64) = (1.0, 1.5);

/// An insert of a person with fields drawn by PostgreSQL's own load generator: the same shape, the same number of
/// distinct values, new ids.
pub fn insert_script(json: &str) -> String {
    format!(
        "\\set team random(0, {})\n\\set city random(0, {})\n\\set score random(0, {})\n\
         \\set a random(0, {tags})\n\\set b random(0, {tags})\n\\set c random(0, {tags})\n\
         \\set d random(0, {skus})\n\\set e random(0, {skus})\n\\set f random(0, {skus})\n\
         INSERT INTO items (id, body) SELECT 'new-' || n, format('{json}', n, (:team)::int, (:city)::int, (:score)::int, \
         (:a)::int, (:b)::int, (:c)::int, (:d)::int, (:e)::int, (:f)::int)::jsonb FROM nextval('numbers') AS n;\n",
        TEAMS - 1,
        CITIES - 1,
        SCORES - 1,
        tags = TAGS - 1,
        skus = SKUS - 1,
    )
}
