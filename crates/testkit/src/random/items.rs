//! Items with every kind of value, some of it missing and some of another type than usual.

use super::{QueryGenerator, STRINGS, quoted};

impl QueryGenerator {
    /// The JSON of an item with this id.
    pub fn item(&mut self, id: u64) -> String {
        let mut members = vec![format!("\"id\":\"{id}\""), format!("\"pk\":\"key{}\"", self.below(5))];
        let number = self.number();
        self.member(&mut members, "n", 8, number);
        let text = quoted(self.pick(STRINGS));
        self.member(&mut members, "s", 6, text);
        let mixed = self.constant();
        self.member(&mut members, "m", 4, mixed);
        let truth = self.pick(&["true", "false"]).to_owned();
        self.member(&mut members, "b", 4, truth);
        let inner = self.object();
        self.member(&mut members, "o", 6, inner);
        let tags = self.array(QueryGenerator::constant);
        self.member(&mut members, "t", 6, tags);
        let list = self.array(|random| {
            if random.one_in(6) {
                return random.constant();
            }
            format!("{{\"k\":{},\"v\":{}}}", quoted(random.pick(STRINGS)), random.number())
        });
        self.member(&mut members, "l", 6, list);
        let big = self.big_member();
        self.member(&mut members, "big", 3, big);
        let odd = self.number();
        self.member(&mut members, "odd name", 3, odd);
        for (name, value) in self.special_members() {
            self.member(&mut members, name, 5, value);
        }
        let long = format!("\"{}{}\"", "long".repeat(30), self.pick(&["", "a", "b", "bb", "c"]));
        self.member(&mut members, "long", 3, long);
        format!("{{{}}}", members.join(","))
    }

    /// Left out once in so many times, and of another type now and then.
    fn member(&mut self, members: &mut Vec<String>, name: &str, gone_in: u64, value: String) {
        if self.one_in(gone_in) {
            return;
        }
        let value = if self.one_in(15) { self.constant() } else { value };
        members.push(format!("\"{name}\":{value}"));
    }

    fn object(&mut self) -> String {
        let mut members = Vec::new();
        let (x, y) = (self.number(), quoted(self.pick(STRINGS)));
        self.member(&mut members, "x", 5, x);
        self.member(&mut members, "y", 5, y);
        format!("{{{}}}", members.join(","))
    }

    fn array(&mut self, element: fn(&mut QueryGenerator) -> String) -> String {
        let elements: Vec<String> = (0..self.below(5)).map(|_| element(self)).collect();
        format!("[{}]", elements.join(","))
    }
}
