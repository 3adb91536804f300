//! Well-known public sample shapes, made by hand: their authors should find nothing silly.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    vec![
        clean(
            "families: parents, children, pets, address",
            &["unbounded-array", "missing-discriminator", "extract-part"],
            families,
        ),
        clean(
            "products with reviews, a few each",
            &["unbounded-array", "embed-together", "outliers"],
            products,
        ),
        fires(
            "products with reviews: all of them inside, and more each day",
            &[("unbounded-array", "products", "/reviews")],
            reviewed_products,
        ),
        clean(
            "products with the names of their categories and tags, kept right by a feed",
            &["stale-copies", "hot-copy", "dangling-references", "copy-missing"],
            categories,
        ),
        clean(
            "customers and orders in one container",
            &["missing-discriminator", "dangling-references", "stale-copies"],
            orders,
        ),
        clean(
            "customers with addresses and passwords, orders with lines, counted by a batch",
            &["rollup-wrong", "hot-copy", "repeated-aggregate", "embed-together", "not-atomic"],
            customers,
        ),
        clean("volcanoes", &["type-drift", "number-fidelity", "event-items"], volcanoes),
        clean(
            "volcanoes: read by region and around a point",
            &["index-missing", "key-few-values", "sparse-attributes", "unsortable-dates"],
            volcanoes_around,
        ),
        clean(
            "foods with their nutrients and servings",
            &["large-array", "unbounded-array", "outliers", "hot-copy", "extract-part"],
            foods,
        ),
        clean(
            "carts: what visitors viewed, put in and bought",
            &["event-items", "key-monotone", "unbounded-result", "join-items"],
            carts,
        ),
    ]
}

fn families(db: &mut Db) {
    db.container("families", "/lastName");
    for number in 0..250 {
        let parents = list(1 + number % 2, |place| {
            format!(r#"{{"firstName":"{}","familyName":"f{place}"}}"#, words(number + place, 7))
        });
        let children = list(number % 4, |child| {
            let pets = list(number % 3, |pet| format!(r#"{{"givenName":"{}"}}"#, words(number + pet, 6)));
            format!(
                r#"{{"givenName":"{}","gender":"{}","grade":{},"pets":[{pets}]}}"#,
                words(number + child, 8),
                if child == 0 { "female" } else { "male" },
                child + 1
            )
        });
        db.add(
            "families",
            format!(
                r#"{{"id":"{}.{number}","lastName":"{}","parents":[{parents}],"children":[{children}],"address":{{"state":"WA","county":"King","city":"c{}"}},"isRegistered":{}}}"#,
                words(number, 8),
                words(number, 8),
                number % 12,
                number % 2 == 0
            ),
        );
    }
    db.query("families", "SELECT * FROM f WHERE f.address.city = 'c1'", 20, 20, 300);
    db.query("families", "SELECT c.givenName FROM f JOIN c IN f.children WHERE c.grade > 2", 40, 40, 100);
    db.traffic("families", 1_000);
    let ids = db.ids("families");
    db.change("families", &ids[1], &["/isRegistered"], 60);
}

fn products(db: &mut Db) {
    db.container("products", "/categoryId");
    for number in 0..300 {
        let tags = list(1 + number % 4, |tag| {
            format!(r#"{{"id":"tag{}","name":"n{}"}}"#, (number + tag) % 30, (number + tag) % 30)
        });
        let reviews = list(varied_number(number, 9), |review| {
            format!(r#"{{"user":"u{review}","stars":{},"text":"{}"}}"#, review % 5, words(number, 50))
        });
        db.add(
            "products",
            format!(
                r#"{{"id":"p{number}","categoryId":"cat{}","categoryName":"Category {}","sku":"SK-{number}","name":"{}","price":{}.99,"tags":[{tags}],"reviews":[{reviews}]}}"#,
                number % 25,
                number % 25,
                words(number, 20),
                varied_number(number, 400)
            ),
        );
    }
    db.query_in_key("products", "SELECT * FROM p WHERE p.categoryId = 'cat1' ORDER BY p.price", 12, 12, 600);
    db.query(
        "products",
        "SELECT p.name, t.name AS tag FROM p JOIN t IN p.tags WHERE t.name = 'n1'",
        30,
        30,
        200,
    );
    db.traffic("products", 1_500);
    db.change("products", "p1", &["/price"], 120);
}

fn orders(db: &mut Db) {
    db.container("customer", "/customerId");
    for number in 0..120 {
        db.add(
            "customer",
            format!(
                r#"{{"id":"c{number}","type":"customer","customerId":"c{number}","title":"","firstName":"{}","lastName":"{}","emailAddress":"e{number}","salesOrderCount":{}}}"#,
                words(number, 8),
                words(number + 1, 9),
                2 + number % 3
            ),
        );
        for order in 0..2 + number % 3 {
            let details = list(1 + order, |line| {
                format!(
                    r#"{{"sku":"SK-{line}","name":"{}","price":{},"quantity":{}}}"#,
                    words(line, 12),
                    line + 5,
                    line + 1
                )
            });
            db.add(
                "customer",
                format!(
                    r#"{{"id":"o{number}-{order}","type":"salesOrder","customerId":"c{number}","orderDate":"2026-0{}-11T00:00:00Z","shipDate":"2026-0{}-15T00:00:00Z","details":[{details}]}}"#,
                    1 + order,
                    1 + order
                ),
            );
        }
    }
    db.query_in_key(
        "customer",
        "SELECT * FROM c WHERE c.customerId = 'c1' AND c.type = 'salesOrder' ORDER BY c.orderDate DESC",
        3,
        3,
        700,
    );
    db.traffic("customer", 1_500);
    // The count and the order are written by one batch.
    for number in 0..200 {
        db.action(|db| {
            db.write("customer", &format!("c{}", number % 120), &["/salesOrderCount"], &[], 1, |record| {
                if let Some(change) = &mut record.change {
                    change.in_batch = true;
                    change.item_type = Some(2);
                }
            });
        });
    }
}

fn volcanoes(db: &mut Db) {
    db.container("volcanoes", "/Country");
    for number in 0..300 {
        let elevation = if number % 50 == 0 {
            "null".to_owned()
        } else {
            format!("{}", varied_number(number, 6_000) as i64 - 500)
        };
        db.add(
            "volcanoes",
            format!(
                r#"{{"id":"{:08x}-v{number}","Volcano Name":"{}","Country":"Country {}","Region":"Region {}","Location":{{"type":"Point","coordinates":[{}.5,{}.25]}},"Elevation":{elevation},"Type":"T{}","Status":"S{}","Last Known Eruption":"Last known eruption from {} or later"}}"#,
                varied_number(number, 1 << 30),
                words(number, 11),
                number % 60,
                number % 19,
                varied_number(number, 180),
                varied_number(number + 1, 80),
                number % 7,
                number % 5,
                1_500 + number
            ),
        );
    }
    db.query("volcanoes", "SELECT * FROM v WHERE v.Type = 'T1' AND v.Elevation > 1000", 30, 30, 300);
    db.traffic("volcanoes", 1_500);
}

/// A third of the writes add a review, to a few products most.
fn reviewed_products(db: &mut Db) {
    db.container("products", "/categoryId");
    let length = |number: usize| 40 + varied_number(number, 260);
    for number in 0..260 {
        let reviews = list(length(number), |review| {
            format!(
                r#"{{"user":"{}","stars":{},"text":"{}"}}"#,
                words(number + review, 9),
                review % 5,
                words(review, 60)
            )
        });
        db.add(
            "products",
            format!(
                r#"{{"id":"p{number}","categoryId":"cat{}","sku":"SK-{number}","name":"{}","price":{}.99,"reviews":[{reviews}]}}"#,
                number % 25,
                words(number, 20),
                varied_number(number, 400)
            ),
        );
    }
    for number in 0..600 {
        let product = varied_number(number, 90);
        let before = (length(product) + number / 90) as u64;
        db.resize("products", &format!("p{product}"), "/reviews", before, before + 1);
        db.wait(60_000);
    }
    db.query_in_key("products", "SELECT * FROM p WHERE p.categoryId = 'cat1'", 12, 12, 300);
    db.traffic("products", 1_200);
}

/// Categories and tags have containers of their own; a feed writes their names to the products when they change.
fn categories(db: &mut Db) {
    db.container("products", "/categoryId");
    db.container("productMeta", "/type");
    for number in 0..60 {
        let name = words(number * 3, 14);
        db.add("productMeta", format!(r#"{{"id":"cat-{number}","type":"category","name":"{name}"}}"#));
    }
    for number in 0..200 {
        let name = words(number * 7 + 1, 10);
        db.add("productMeta", format!(r#"{{"id":"tag-{number}","type":"tag","name":"{name}"}}"#));
    }
    for number in 0..600 {
        let category = number % 60;
        let tags = list(1 + number % 4, |tag| {
            let tag = varied_number(number * 5 + tag, 200);
            format!(r#"{{"id":"tag-{tag}","name":"{}"}}"#, words(tag * 7 + 1, 10))
        });
        db.add(
            "products",
            format!(
                r#"{{"id":"pr{number}","categoryId":"cat-{category}","categoryName":"{}","sku":"SKU-{number}","name":"{}","description":"{}","price":{}.5,"tags":[{tags}]}}"#,
                words(category * 3, 14),
                words(number, 24),
                words(number + 2, 80),
                varied_number(number, 900)
            ),
        );
    }
    db.query_in_key("products", "SELECT * FROM p WHERE p.categoryId = 'cat-1'", 10, 10, 700);
    db.query_in_key("productMeta", "SELECT * FROM c WHERE c.type = 'category'", 60, 60, 200);
    db.traffic("products", 1_400);
    db.traffic("productMeta", 1_200);
    db.change("products", "pr1", &["/price"], 150);
    db.change("products", "pr2", &["/categoryName"], 30);
    db.change("productMeta", "cat-2", &["/name"], 3);
}

fn customers(db: &mut Db) {
    db.container("customers", "/customerId");
    let orders = |number: usize| 1 + varied_number(number, 6);
    for number in 0..220 {
        let addresses = list(1 + number % 3, |address| {
            format!(
                r#"{{"addressLine1":"{}","addressLine2":"","city":"{}","state":"s{}","country":"us","zipCode":"{:05}"}}"#,
                words(number + address, 14),
                words(address + number % 40, 8),
                number % 12,
                varied_number(number, 99_999)
            )
        });
        db.add(
            "customers",
            format!(
                r#"{{"id":"{number:08x}-c","type":"customer","customerId":"{number:08x}-c","title":"","firstName":"{}","lastName":"{}","emailAddress":"e{number}@example.org","phoneNumber":"555-{number:04}","creationDate":"2025-0{}-01T00:00:00","addresses":[{addresses}],"password":{{"hash":"{}","salt":"{}"}},"salesOrderCount":{}}}"#,
                words(number, 7),
                words(number + 3, 9),
                1 + number % 9,
                words(number * 13, 43),
                words(number * 17, 8),
                orders(number)
            ),
        );
        for order in 0..orders(number) {
            let details = list(1 + varied_number(number + order, 4), |line| {
                let sku = varied_number(number * 3 + line, 60);
                format!(
                    r#"{{"sku":"BK-{sku}","name":"{}","price":{}.99,"quantity":{}}}"#,
                    words(sku, 18),
                    5 + sku,
                    1 + line
                )
            });
            db.add(
                "customers",
                format!(
                    r#"{{"id":"{number:08x}-{order}-o","type":"salesOrder","customerId":"{number:08x}-c","orderDate":"2026-0{}-11T00:00:00","shipDate":"2026-0{}-15T00:00:00","details":[{details}]}}"#,
                    1 + order,
                    1 + order
                ),
            );
        }
    }
    let ids = db.ids("customers");
    db.query_in_key(
        "customers",
        "SELECT * FROM c WHERE c.customerId = 'x' AND c.type = 'salesOrder'",
        3,
        3,
        800,
    );
    db.query("customers", "SELECT TOP 10 c.firstName, c.salesOrderCount FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", 10, 10, 40);
    db.traffic("customers", 1_500);
    for number in 0..150 {
        db.write("customers", &ids[number % ids.len()], &["/salesOrderCount"], &[], 1, |record| {
            if let Some(change) = &mut record.change {
                change.in_batch = true;
                change.item_type = Some(2);
            }
        });
        db.wait(60_000);
    }
}

fn volcanoes_around(db: &mut Db) {
    volcanoes(db);
    db.query("volcanoes", "SELECT * FROM v WHERE v.Region = 'Region 1'", 16, 16, 400);
    db.query(
        "volcanoes",
        "SELECT * FROM v WHERE ST_DISTANCE(v.Location, {'type':'Point','coordinates':[1,2]}) < 100000",
        12,
        8,
        200,
    );
    db.query("volcanoes", "SELECT * FROM v WHERE CONTAINS(v['Volcano Name'], 'ra')", 40, 12, 30);
}

/// About seventy nutrients in every food, always the same ones; loaded once and read.
fn foods(db: &mut Db) {
    db.container("foods", "/foodGroup");
    for number in 0..400 {
        let nutrients = list(50 + varied_number(number, 40), |nutrient| {
            format!(
                r#"{{"id":"{}","description":"{}","nutritionValue":{}.{},"units":"{}"}}"#,
                200 + nutrient,
                words(nutrient, 12),
                varied_number(number * 3 + nutrient, 90),
                varied_number(number + nutrient, 9),
                ["g", "mg", "kcal"][nutrient % 3]
            )
        });
        let servings = list(1 + number % 4, |serving| {
            format!(
                r#"{{"amount":1,"description":"cup {serving}","weightInGrams":{}}}"#,
                20 + varied_number(number + serving, 300)
            )
        });
        let tags = list(2 + number % 4, |tag| format!(r#"{{"name":"{}"}}"#, words(number % 70 + tag, 7)));
        db.add(
            "foods",
            format!(
                r#"{{"id":"{:05}","description":"{}","version":1,"isFromSurvey":false,"foodGroup":"group {}","tags":[{tags}],"nutrients":[{nutrients}],"servings":[{servings}]}}"#,
                number + 1_000,
                words(number, 40),
                number % 25
            ),
        );
    }
    db.query_in_key("foods", "SELECT * FROM f WHERE f.foodGroup = 'group 1'", 16, 16, 500);
    db.query("foods", "SELECT f.description FROM f JOIN t IN f.tags WHERE t.name = 'x'", 12, 12, 200);
    db.traffic("foods", 1_800);
}

/// Events of a shop's visitors, as a feed consumer writes them.
fn carts(db: &mut Db) {
    db.container("carts", "/Item");
    for number in 0..1_500 {
        let item = varied_number(number, 140);
        db.add(
            "carts",
            format!(
                r#"{{"id":"{:08x}","CartID":{},"Action":"{}","Item":"{}","Price":{}.5,"UserName":"{}","Country":"{}","Address":"{} {}"}}"#,
                varied_number(number * 31 + 7, 1 << 30) + number,
                varied_number(number * 11, 90_000),
                ["Viewed", "Added", "Purchased"][varied_number(number, 3)],
                words(item, 12),
                10 + item,
                words(number * 3, 9),
                words(number % 30, 8),
                number % 90,
                words(number % 200, 12)
            ),
        );
    }
    let ids = db.ids("carts");
    for id in ids.iter().take(1_200) {
        db.create("carts", id);
        db.wait(45_000);
    }
    db.query("carts", "SELECT VALUE COUNT(1) FROM c WHERE c.Action = 'Purchased'", 400, 1, 24);
}
