//! Well-known public sample shapes, made by hand: their authors should find nothing silly.

use crate::harness::Db;
use crate::shape::{dice, list, words};
use crate::{Case, clean};

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
        clean(
            "customers and orders in one container",
            &["missing-discriminator", "dangling-references", "stale-copies"],
            orders,
        ),
        clean("volcanoes", &["type-drift", "number-fidelity", "event-items"], volcanoes),
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
        let reviews = list(dice(number, 9), |review| {
            format!(r#"{{"user":"u{review}","stars":{},"text":"{}"}}"#, review % 5, words(number, 50))
        });
        db.add(
            "products",
            format!(
                r#"{{"id":"p{number}","categoryId":"cat{}","categoryName":"Category {}","sku":"SK-{number}","name":"{}","price":{}.99,"tags":[{tags}],"reviews":[{reviews}]}}"#,
                number % 25,
                number % 25,
                words(number, 20),
                dice(number, 400)
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
            format!("{}", dice(number, 6_000) as i64 - 500)
        };
        db.add(
            "volcanoes",
            format!(
                r#"{{"id":"{:08x}-v{number}","Volcano Name":"{}","Country":"Country {}","Region":"Region {}","Location":{{"type":"Point","coordinates":[{}.5,{}.25]}},"Elevation":{elevation},"Type":"T{}","Status":"S{}","Last Known Eruption":"Last known eruption from {} or later"}}"#,
                dice(number, 1 << 30),
                words(number, 11),
                number % 60,
                number % 19,
                dice(number, 180),
                dice(number + 1, 80),
                number % 7,
                number % 5,
                1_500 + number
            ),
        );
    }
    db.query("volcanoes", "SELECT * FROM v WHERE v.Type = 'T1' AND v.Elevation > 1000", 30, 30, 300);
    db.traffic("volcanoes", 1_500);
}
