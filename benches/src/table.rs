//! Figures against their bounds, as a Markdown table.

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    figure: String,
    bound: String,
    met: bool,
}

impl Table {
    pub fn at_most(&mut self, what: &str, value: f64, bound: f64, unit: &str) {
        self.row(what, format!("{value:.2}{unit}"), format!("at most {bound}{unit}"), value <= bound);
    }

    pub fn at_least(&mut self, what: &str, value: f64, bound: f64, unit: &str) {
        self.row(what, format!("{value:.2}{unit}"), format!("at least {bound}{unit}"), value >= bound);
    }

    /// A figure without a bound.
    pub fn note(&mut self, what: &str, figure: String) {
        self.row(what, figure, String::new(), true);
    }

    fn row(&mut self, what: &str, figure: String, bound: String, met: bool) {
        eprintln!("{what}: {figure} {bound}{}", if met { "" } else { "  MISSED" });
        self.rows.push(Row { what: what.to_owned(), figure, bound, met });
    }

    pub fn print(&self) {
        println!("| measured | figure | bound | met |\n|---|---|---|---|");
        for row in &self.rows {
            let met = if row.bound.is_empty() {
                ""
            } else if row.met {
                "yes"
            } else {
                "**no**"
            };
            println!("| {} | {} | {} | {met} |", row.what, row.figure, row.bound);
        }
    }
}
