//! Time of the hot paths: `cargo bench -p quire-value`. Prints the best of several rounds for an item of about 1 KB.

use std::hint::black_box;
use std::time::Instant;

use quire_value::{Item, Limits, Node, Path, key, text};

const ROUNDS: usize = 20;
const REPEATS: usize = 5_000;

fn main() {
    let json = item_json();
    let item = Item::from_json(json.as_bytes(), Limits::default()).expect("the item is JSON");
    let value = item.root().to_value();
    let per_kb = 1024.0 / json.len() as f64;
    println!("text {} bytes, binary {} bytes", json.len(), item.as_bytes().len());

    let report = |name: &str, nanoseconds: f64| println!("{name:<28} {nanoseconds:>8.0} ns");
    let report_kb = |name: &str, nanoseconds: f64| {
        println!("{name:<28} {nanoseconds:>8.0} ns  {:>6.0} ns per KB", nanoseconds * per_kb);
    };
    report_kb("Item::from_json", best(|| Item::from_json(black_box(json.as_bytes()), Limits::default())));
    const SYSTEM: &[&str] = &["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];
    report_kb(
        "from_json_object_without",
        best(|| Item::from_json_object_without(black_box(json.as_bytes()), Limits::default(), SYSTEM)),
    );
    report_kb("text::parse", best(|| text::parse(black_box(json.as_bytes()), Limits::default())));
    let mut out = Vec::new();
    report_kb(
        "Node::write_json",
        best(|| {
            out.clear();
            item.root().write_json(black_box(&mut out));
        }),
    );
    report_kb(
        "Value::write_json",
        best(|| {
            out.clear();
            value.write_json(black_box(&mut out));
        }),
    );
    report_kb("Node::json_len", best(|| item.root().json_len()));
    report_kb("Node::to_value", best(|| item.root().to_value()));
    report_kb("Item::from_value", best(|| Item::from_value(black_box(&value))));
    report_kb("Item::from_bytes", best(|| Item::from_bytes(black_box(item.as_bytes()).to_vec())));
    for path in ["/id", "/address/city", "/orders", "/address/geo/lat", "/missing"] {
        let path = Path::parse(path).expect("the path is well-formed");
        let name = format!("find_in {path}");
        report(
            &name,
            best(|| path.find_in(Node::of(black_box(item.as_bytes())).expect("the item has a header"))),
        );
    }
    report(
        "key::encode of the item",
        best(|| {
            out.clear();
            key::encode(black_box(&value), &mut out);
        }),
    );
}

fn best<T>(mut work: impl FnMut() -> T) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..REPEATS {
            black_box(work());
        }
        start.elapsed().as_nanos() as f64 / REPEATS as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn item_json() -> String {
    let orders: Vec<String> = (0..5)
        .map(|i| format!(r#"{{"sku":"ABC-{i:05}","quantity":{i},"price":{}.95,"gift":false}}"#, 10 + i * 7))
        .collect();
    format!(
        concat!(
            r#"{{"id":"7c5f7c1e-4b60-4b5a-9f0e-6c2c9f0d7a11","tenant":"contoso","kind":"customer","name":"Ada Lovelace","#,
            r#""email":"ada.lovelace@example.com","age":36,"active":true,"balance":1234.5678,"created":1700000000123,"#,
            r#""address":{{"street":"12 St James's Square","city":"London","zip":"SW1Y 4JH","geo":{{"lat":51.50722,"lon":-0.1275}}}},"#,
            r#""tags":["mathematics","engine","notes","first","programmer"],"orders":[{}],"#,
            r#""notes":"The Analytical Engine weaves algebraical patterns just as the Jacquard loom weaves flowers and leaves. Line two\nhas an \"escape\" or two.","#,
            r#""_rid":"AbCdEf==","_self":"dbs/AbCd==/colls/AbCdEf=/docs/AbCdEfGh==/","_etag":"\"0000-0000\"","_ts":1700000000}}"#
        ),
        orders.join(",")
    )
}
