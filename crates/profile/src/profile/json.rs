//! The profile as JSON. No value of an item is in it but ids and values of the discriminator.

use quire_value::{Object, Value};

use crate::sketch::Summary;
use crate::workload::{Operation, Projection, SequenceProfile, ShapeProfile};

use super::{
    ArrayProfile, ContainerProfile, ElementKind, Kinds, PathProfile, ReferenceProfile, Repetition,
    TypeProfile,
};

impl ContainerProfile {
    /// `GET colls/{coll}/profile`. The caller makes times text, and ids of items' numbers.
    pub fn to_json(
        &self,
        database: &str,
        time: &dyn Fn(u64) -> String,
        id: &dyn Fn(u64) -> Option<String>,
    ) -> Value {
        let has_discriminator = self.discriminator.is_some();
        let types = self.types.iter().filter(|_| has_discriminator).map(type_json);
        let paths =
            self.types.iter().flat_map(|kind| kind.paths.iter().map(|path| self.path_json(kind, path)));
        let arrays =
            self.types.iter().flat_map(|kind| kind.arrays.iter().map(|array| array_json(kind, array)));
        object([
            ("database", Value::from(database)),
            ("container", Value::from(self.container.as_str())),
            ("revision", Value::from(self.revision)),
            ("generated", Value::from(time(self.generated_ms))),
            ("partitions", Value::from(self.partitions)),
            ("items", self.items_json()),
            ("followed", self.followed_json(time)),
            ("size", quantiles(&self.size, &["p50", "p95", "p99", "max"])),
            ("depth", quantiles(&self.depth, &["p99", "max"])),
            ("recorded", self.recorded_json(time)),
            ("discriminator", self.discriminator_json()),
            ("types", list(types)),
            ("partitionKey", self.key_json()),
            ("paths", list(paths)),
            ("arrays", list(arrays)),
            ("repetition", list(self.repetition.iter().map(repetition_json))),
            ("references", list(self.references.iter().map(reference_json))),
            ("change", self.change_json()),
            ("operations", self.operations_json()),
            ("shapes", list(self.workload.shapes.iter().map(shape_json))),
            ("sequences", list(self.workload.sequences.iter().map(sequence_json))),
            ("hotKeys", self.hot_keys_json()),
            ("hotItems", self.hot_items_json(id)),
        ])
    }

    fn items_json(&self) -> Value {
        object([
            ("count", Value::from(self.items.count)),
            ("scanned", Value::from(self.items.scanned)),
            ("bytes", Value::from(self.items.bytes)),
        ])
    }

    fn followed_json(&self, time: &dyn Fn(u64) -> String) -> Value {
        let Some(followed) = &self.followed else { return Value::Null };
        object([("since", Value::from(time(followed.since_ms))), ("changes", Value::from(followed.changes))])
    }

    fn recorded_json(&self, time: &dyn Fn(u64) -> String) -> Value {
        let is_recorded = self.workload.total_operations() > 0;
        let time = |ms: u64| if is_recorded { Value::from(time(ms)) } else { Value::Null };
        object([
            ("from", time(self.workload.from_ms)),
            ("to", time(self.workload.to_ms)),
            ("days", figure(self.workload.days)),
            ("operations", Value::from(self.workload.total_operations())),
        ])
    }

    fn discriminator_json(&self) -> Value {
        let Some(found) = &self.discriminator else { return Value::Null };
        let value = |(value, count): &(String, u64)| {
            object([("value", Value::from(value.as_str())), ("count", Value::from(*count))])
        };
        object([
            ("path", Value::from(found.path.as_str())),
            ("purity", figure(found.purity)),
            ("values", list(found.values.iter().map(value))),
        ])
    }

    fn key_json(&self) -> Value {
        let key = &self.partition_key;
        let largest = object([
            ("items", Value::from(key.largest.items)),
            ("bytes", Value::from(key.largest.bytes)),
            ("share", figure(key.largest.share)),
        ]);
        object([
            ("values", Value::from(key.values)),
            ("largest", largest),
            ("gini", figure(key.gini)),
            ("types", kinds_json(&key.kinds)),
            ("absent", figure(key.absent)),
        ])
    }

    fn path_json(&self, kind: &TypeProfile, path: &PathProfile) -> Value {
        let mut found = Object::from_iter([("path", Value::from(path.path.as_str()))]);
        add_type(&mut found, kind);
        found.set("present", figure(path.present));
        found.set("types", kinds_json(&path.kinds));
        found.set("distinct", path.distinct);
        found.set("length", quantiles(&path.length, &["p50", "p95", "max"]));
        found.set("bytes", figure(path.bytes));
        found.set("indexed", path.indexed);
        found.set("used", list(self.uses(&path.path).into_iter().map(Value::from)));
        Value::from(found)
    }

    /// In which parts of recorded queries a path is named.
    fn uses(&self, path: &str) -> Vec<&'static str> {
        let shapes = || self.workload.shapes.iter().map(|found| &found.shape);
        let has = |paths: &[String]| paths.iter().any(|own| own == path);
        let mut uses = Vec::new();
        let filters = shapes().any(|shape| has(&shape.equality) || has(&shape.range));
        let functions = shapes().any(|shape| shape.functions.iter().any(|(own, _)| own == path));
        let orders = shapes().any(|shape| shape.order_by.iter().any(|(own, _)| own == path));
        let groups = shapes().any(|shape| has(&shape.group_by));
        let aggregates = shapes().any(|shape| shape.aggregates.iter().any(|(_, own)| own == path));
        let joins = shapes().any(|shape| has(&shape.joins));
        let projects =
            shapes().any(|shape| matches!(&shape.projection, Projection::Paths(paths) if has(paths)));
        let all = [
            (filters || functions, "filter"),
            (orders, "orderBy"),
            (groups, "groupBy"),
            (aggregates, "aggregate"),
            (joins, "join"),
            (projects, "projection"),
        ];
        uses.extend(all.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name));
        uses
    }

    fn change_json(&self) -> Value {
        let changes = &self.workload.writes.changes;
        let path = |(path, (changed, only)): (&str, (u64, u64))| {
            object([
                ("path", Value::from(path)),
                ("changes", Value::from(changed)),
                ("only", Value::from(only)),
            ])
        };
        object([
            ("writes", Value::from(changes.writes())),
            ("paths", list(changes.paths().into_iter().map(path))),
        ])
    }

    fn operations_json(&self) -> Value {
        let operation = |(operation, totals): (&Operation, &crate::workload::OperationTotals)| {
            let totals = object([("count", Value::from(totals.count)), ("charge", figure(totals.charge))]);
            (operation.name(), totals)
        };
        Value::from(Object::from_iter(self.workload.operations.iter().map(operation)))
    }

    fn hot_keys_json(&self) -> Value {
        let hot = self.workload.keys.hot.iter().map(|hot| {
            object([("key", Value::from(format!("h:{:04x}", hot.key >> 48))), ("share", figure(hot.share))])
        });
        list(hot)
    }

    /// Items that are gone meanwhile are left out.
    fn hot_items_json(&self, id: &dyn Fn(u64) -> Option<String>) -> Value {
        let hot = self.workload.hot_items.iter().filter_map(|hot| {
            let rate = figure(hot.writes_per_second);
            Some(object([("item", Value::from(id(hot.item)?)), ("writesPerSecond", rate)]))
        });
        list(hot)
    }
}

fn type_json(kind: &TypeProfile) -> Value {
    object([
        ("name", Value::from(kind.name.as_deref())),
        ("count", Value::from(kind.count)),
        ("properties", list(kind.properties.iter().map(|name| Value::from(name.as_str())))),
    ])
}

fn array_json(kind: &TypeProfile, array: &ArrayProfile) -> Value {
    let mut found = Object::from_iter([("path", Value::from(array.path.as_str()))]);
    add_type(&mut found, kind);
    found.set("length", quantiles(&array.length, &["p50", "p95", "p99", "max"]));
    found.set("atMax", figure(array.at_max()));
    found.set("element", element_name(array.element));
    found.set("elementBytes", array.element_bytes.round() as u64);
    if let Some(growth) = array.growth {
        found.set(
            "growth",
            object([
                ("versioned", Value::from(growth.versioned)),
                ("growing", figure(growth.growing)),
                ("shrinking", figure(growth.shrinking)),
                ("perWrite", figure(growth.per_write)),
                ("perDay", figure(growth.per_day)),
            ]),
        );
    }
    Value::from(found)
}

fn element_name(kind: ElementKind) -> &'static str {
    match kind {
        ElementKind::Mixed => "mixed",
        ElementKind::Object => "object",
        ElementKind::String => "string",
        ElementKind::Number => "number",
        ElementKind::Bool => "boolean",
        ElementKind::Array => "array",
    }
}

fn repetition_json(found: &Repetition) -> Value {
    object([
        ("path", Value::from(found.path.as_str())),
        ("key", Value::from(found.key.as_str())),
        ("keys", Value::from(found.keys)),
        ("perKey", quantiles(&found.per_key, &["p50", "p95"])),
        ("identical", figure(found.identical)),
    ])
}

fn reference_json(found: &ReferenceProfile) -> Value {
    let to =
        object([("container", Value::from(found.to.as_str())), ("key", Value::from(found.key.as_str()))]);
    let share = |equal: u64, cases: u64| figure(equal as f64 / cases.max(1) as f64);
    let copies = found.copies.iter().map(|copy| {
        object([
            ("path", Value::from(copy.path.as_str())),
            ("of", Value::from(copy.of.as_str())),
            ("equal", figure(copy.equal_share())),
        ])
    });
    let counts = found.counts.iter().map(|count| {
        object([
            ("path", Value::from(count.path.as_str())),
            ("op", Value::from(count.op)),
            ("equal", share(count.equal, count.targets)),
        ])
    });
    let mirror = found.mirror.as_ref().map(|mirror| {
        object([("path", Value::from(mirror.path.as_str())), ("equal", share(mirror.equal, mirror.targets))])
    });
    object([
        ("path", Value::from(found.path.as_str())),
        ("to", to),
        ("overlap", figure(found.overlap)),
        ("distinct", Value::from(found.distinct)),
        ("dangling", figure(found.dangling_share())),
        ("perItem", quantiles(&found.per_item, &["p50", "p95", "max"])),
        ("perTarget", quantiles(&found.per_target, &["p50", "p95", "max"])),
        ("declared", Value::from(found.declared.as_deref())),
        ("copies", list(copies)),
        ("counts", list(counts)),
        ("mirror", mirror.unwrap_or(Value::Null)),
    ])
}

fn shape_json(found: &ShapeProfile) -> Value {
    let shape = &found.shape;
    let texts = |paths: &[String]| list(paths.iter().map(|path| Value::from(path.as_str())));
    let order = shape.order_by.iter().map(|(path, descending)| {
        Value::from(format!("{path} {}", if *descending { "DESC" } else { "ASC" }))
    });
    let calls = |calls: &[(String, String)]| {
        list(calls.iter().map(|(one, other)| Value::from(format!("{one} {other}").trim_end())))
    };
    let projection = match &shape.projection {
        Projection::All => Value::from("*"),
        Projection::Paths(paths) => texts(paths),
    };
    let charge = object([
        ("sum", figure(found.totals.charge_sum)),
        ("p50", figure(found.totals.charge.p50)),
        ("p95", figure(found.totals.charge.p95)),
    ]);
    object([
        ("shape", Value::from(format!("q-{:04x}", shape.id >> 48))),
        ("text", Value::from(shape.text.as_str())),
        ("count", Value::from(found.totals.count)),
        ("charge", charge),
        ("rowsRead", quantiles(&found.totals.rows_read, &["p50"])),
        ("returned", quantiles(&found.totals.returned, &["p50", "p95"])),
        ("equality", texts(&shape.equality)),
        ("range", texts(&shape.range)),
        ("orderBy", list(order)),
        ("functions", calls(&shape.functions)),
        ("joins", texts(&shape.joins)),
        ("aggregates", calls(&shape.aggregates)),
        ("projection", projection),
        ("scope", Value::from(shape.scope.name())),
        ("offset", object([("max", Value::from(shape.offset))])),
        ("refused", Value::from(found.totals.refused)),
    ])
}

fn sequence_json(found: &SequenceProfile) -> Value {
    object([
        ("from", Value::from(found.from.as_str())),
        ("to", Value::from(found.to.as_str())),
        ("count", Value::from(found.count)),
        ("share", figure(found.share)),
        ("alone", figure(found.alone)),
        ("width", quantiles(&found.width, &["p50", "p95"])),
    ])
}

fn add_type(found: &mut Object, kind: &TypeProfile) {
    if let Some(name) = &kind.name {
        found.set("type", name.as_str());
    }
}

fn kinds_json(kinds: &Kinds) -> Value {
    Value::from(Object::from_iter(kinds.shares().into_iter().map(|(name, share)| (name, figure(share)))))
}

/// Sizes and lengths are whole numbers.
fn quantiles(summary: &Summary, wanted: &[&str]) -> Value {
    let value = |name: &str| match name {
        "p50" => summary.p50,
        "p95" => summary.p95,
        "p99" => summary.p99,
        _ => summary.max,
    };
    Value::from(Object::from_iter(wanted.iter().map(|name| (*name, figure(value(name).round())))))
}

/// Four digits behind the point; whole numbers without one.
fn figure(value: f64) -> Value {
    let rounded = (value * 10_000.0).round() / 10_000.0;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        Value::from(rounded as i64)
    } else {
        Value::from(rounded)
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::from(Object::from_iter(members))
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    Value::from(values.collect::<Vec<_>>())
}
