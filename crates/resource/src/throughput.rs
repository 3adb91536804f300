//! Provisioned throughput: manual or autoscale.

use quire_value::{Limits, Object, Value, text};

use crate::members;

const MANUAL_HEADER: &str = "x-ms-offer-throughput";
const AUTOSCALE_HEADER: &str = "x-ms-cosmos-offer-autopilot-settings";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    Manual(u32),
    /// `increment_percent`: of the upgrade policy, if there is one
    Autoscale {
        max: u32,
        increment_percent: Option<u32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ThroughputError {
    pub message: String,
}

/// RU/s of one partition of a new container.
const MANUAL_PER_PARTITION: u32 = 6000;
const AUTOSCALE_PER_PARTITION: u32 = 10_000;

/// The limits of one of the two forms.
struct Bounds {
    min: u32,
    max: u32,
    step: u32,
    /// The minimum is the highest value ever provisioned, divided by this.
    highest_divisor: u32,
    words: &'static str,
}

const MANUAL: Bounds =
    Bounds { min: 400, max: 1_000_000, step: 100, highest_divisor: 100, words: "throughput values" };
const AUTOSCALE: Bounds =
    Bounds { min: 1000, max: 1_000_000, step: 1000, highest_divisor: 10, words: "maximum throughput values" };

impl Throughput {
    /// From `x-ms-offer-throughput` and `x-ms-cosmos-offer-autopilot-settings` (both present is an error; neither is `None`).
    pub fn from_headers(
        manual: Option<&str>,
        autoscale: Option<&str>,
    ) -> Result<Option<Throughput>, ThroughputError> {
        match (manual, autoscale) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(error(format!(
                "The headers {MANUAL_HEADER} and {AUTOSCALE_HEADER} cannot both be specified."
            ))),
            (Some(manual), None) => {
                let value = manual.trim().parse().map_err(|_| bad_header(MANUAL_HEADER, manual))?;
                MANUAL.check(value).map(Throughput::Manual).map(Some)
            }
            (None, Some(autoscale)) => {
                let settings = text::parse(autoscale.as_bytes(), Limits::default());
                let settings = settings.map_err(|_| bad_header(AUTOSCALE_HEADER, autoscale))?;
                read_autoscale(&settings, AUTOSCALE_HEADER).map(Some)
            }
        }
    }

    /// From the `content` of an offer that a client replaces.
    pub fn from_offer_content(content: &Value) -> Result<Throughput, ThroughputError> {
        let object = content.as_object().ok_or_else(|| expected("content", "an object"))?;
        if let Some(settings) = members::present(object, "offerAutopilotSettings") {
            return read_autoscale(settings, "content.offerAutopilotSettings");
        }
        let value = members::present(object, "offerThroughput").and_then(Value::as_i64);
        let value = value.ok_or_else(|| expected("content.offerThroughput", "an integer"))?;
        MANUAL.check(value).map(Throughput::Manual)
    }

    /// The offer's `content` object.
    pub fn to_offer_content(&self, highest_ever: u32, replaced_at: i64) -> Object {
        let mut minimum = Object::new();
        minimum.set("maxThroughputEverProvisioned", i64::from(highest_ever));
        minimum.set("maxConsumedStorageEverInKB", 0);
        let mut content = Object::new();
        content.set("offerThroughput", i64::from(self.maximum()));
        content.set("offerIsRUPerMinuteThroughputEnabled", false);
        content.set("offerMinimumThroughputParameters", minimum);
        content.set("offerLastReplaceTimestamp", replaced_at);
        if let Throughput::Autoscale { max, increment_percent } = *self {
            content.set("offerAutopilotSettings", write_autoscale(max, increment_percent));
        }
        content
    }

    /// Number of partitions that the throughput implies.
    pub fn partitions(&self) -> u32 {
        match *self {
            Throughput::Manual(value) => value.div_ceil(MANUAL_PER_PARTITION),
            Throughput::Autoscale { max, .. } => max.div_ceil(AUTOSCALE_PER_PARTITION),
        }
    }

    /// RU/s (autoscale: its maximum).
    pub fn maximum(&self) -> u32 {
        match *self {
            Throughput::Manual(value) => value,
            Throughput::Autoscale { max, .. } => max,
        }
    }

    /// Smallest value the service accepts for this offer, as `x-ms-cosmos-min-throughput` reports it.
    pub fn minimum(&self, highest_ever: u32) -> u32 {
        self.bounds().minimum(highest_ever)
    }

    /// Refuses a replacement below the minimum that follows from the offer's history.
    pub fn check_minimum(&self, highest_ever: u32) -> Result<(), ThroughputError> {
        let minimum = self.minimum(highest_ever);
        if self.maximum() < minimum { Err(too_small(i64::from(self.maximum()), minimum)) } else { Ok(()) }
    }

    /// The service's default when an offer changes its form: autoscale starts at the manual value rounded up.
    pub fn migrated_to_autoscale(&self, highest_ever: u32) -> Throughput {
        let max = self.maximum().next_multiple_of(AUTOSCALE.step).max(AUTOSCALE.minimum(highest_ever));
        Throughput::Autoscale { max: max.min(AUTOSCALE.max), increment_percent: None }
    }

    /// The reverse: manual starts at the autoscale maximum.
    pub fn migrated_to_manual(&self) -> Throughput {
        Throughput::Manual(self.maximum())
    }

    fn bounds(&self) -> &'static Bounds {
        match self {
            Throughput::Manual(_) => &MANUAL,
            Throughput::Autoscale { .. } => &AUTOSCALE,
        }
    }
}

impl Bounds {
    fn check(&self, value: i64) -> Result<u32, ThroughputError> {
        if value < i64::from(self.min) {
            return Err(too_small(value, self.min));
        }
        match u32::try_from(value) {
            Ok(value) if value <= self.max && value % self.step == 0 => Ok(value),
            _ => Err(error(format!(
                "The offer should have valid {} between {} and {} inclusive in increments of {}.",
                self.words, self.min, self.max, self.step
            ))),
        }
    }

    fn minimum(&self, highest_ever: u32) -> u32 {
        highest_ever.div_ceil(self.highest_divisor).next_multiple_of(self.step).max(self.min)
    }
}

fn error(message: String) -> ThroughputError {
    ThroughputError { message }
}

fn expected(member: &str, what: &str) -> ThroughputError {
    error(members::expected(member, what))
}

fn bad_header(header: &str, value: &str) -> ThroughputError {
    error(format!("Invalid value '{value}' for header '{header}'."))
}

fn too_small(value: i64, minimum: u32) -> ThroughputError {
    error(format!("Requested throughput {value} is less than required minimum throughput {minimum}."))
}

/// `{"maxThroughput": n, "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": n}}}`
fn read_autoscale(settings: &Value, parent: &str) -> Result<Throughput, ThroughputError> {
    let object = settings.as_object().ok_or_else(|| expected(parent, "an object"))?;
    let max = members::present(object, "maxThroughput").and_then(Value::as_i64);
    let max = max.ok_or_else(|| expected(&format!("{parent}.maxThroughput"), "an integer"))?;
    let increment_percent = match members::present(object, "autoUpgradePolicy") {
        Some(policy) => Some(read_increment(policy, &format!("{parent}.autoUpgradePolicy"))?),
        None => None,
    };
    Ok(Throughput::Autoscale { max: AUTOSCALE.check(max)?, increment_percent })
}

fn read_increment(policy: &Value, parent: &str) -> Result<u32, ThroughputError> {
    let percent = policy.get("throughputPolicy").and_then(|policy| policy.get("incrementPercent"));
    let percent = percent.and_then(Value::as_i64).and_then(|percent| u32::try_from(percent).ok());
    percent.filter(|percent| *percent <= 100).ok_or_else(|| {
        expected(&format!("{parent}.throughputPolicy.incrementPercent"), "an integer from 0 to 100")
    })
}

fn write_autoscale(max: u32, increment_percent: Option<u32>) -> Object {
    let mut settings = Object::new();
    settings.set("maxThroughput", i64::from(max));
    if let Some(increment_percent) = increment_percent {
        let mut throughput_policy = Object::new();
        throughput_policy.set("incrementPercent", i64::from(increment_percent));
        let mut policy = Object::new();
        policy.set("throughputPolicy", throughput_policy);
        settings.set("autoUpgradePolicy", policy);
    }
    settings
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(parsed: Result<Option<Throughput>, ThroughputError>, expect: Expect) {
        let shown = match parsed {
            Ok(throughput) => format!("{throughput:?}"),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&shown);
    }

    fn headers(manual: Option<&str>, autoscale: Option<&str>, expect: Expect) {
        check(Throughput::from_headers(manual, autoscale), expect);
    }

    #[test]
    fn from_headers() {
        headers(None, None, expect!["None"]);
        headers(Some("400"), None, expect!["Some(Manual(400))"]);
        headers(
            Some("-200"),
            None,
            expect!["Requested throughput -200 is less than required minimum throughput 400."],
        );
        headers(
            Some("450"),
            None,
            expect![
                "The offer should have valid throughput values between 400 and 1000000 inclusive in increments of 100."
            ],
        );
        headers(
            Some("1000100"),
            None,
            expect![
                "The offer should have valid throughput values between 400 and 1000000 inclusive in increments of 100."
            ],
        );
        headers(
            Some("99999999999"),
            None,
            expect![
                "The offer should have valid throughput values between 400 and 1000000 inclusive in increments of 100."
            ],
        );
        headers(Some("4e2"), None, expect!["Invalid value '4e2' for header 'x-ms-offer-throughput'."]);
        headers(
            None,
            Some(r#"{"maxThroughput":4000}"#),
            expect!["Some(Autoscale { max: 4000, increment_percent: None })"],
        );
        let upgrade =
            r#"{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}"#;
        headers(None, Some(upgrade), expect!["Some(Autoscale { max: 4000, increment_percent: Some(10) })"]);
        headers(
            None,
            Some(r#"{"maxThroughput":-200}"#),
            expect!["Requested throughput -200 is less than required minimum throughput 1000."],
        );
        headers(
            None,
            Some(r#"{"maxThroughput":1500}"#),
            expect![
                "The offer should have valid maximum throughput values between 1000 and 1000000 inclusive in increments of 1000."
            ],
        );
        headers(
            None,
            Some(r#"{"maxThroughput":"4000"}"#),
            expect![
                "One of the specified inputs is invalid: 'x-ms-cosmos-offer-autopilot-settings.maxThroughput' must be an integer."
            ],
        );
        headers(
            None,
            Some(r#"{"maxThroughput":4000,"autoUpgradePolicy":{}}"#),
            expect![
                "One of the specified inputs is invalid: 'x-ms-cosmos-offer-autopilot-settings.autoUpgradePolicy.throughputPolicy.incrementPercent' must be an integer from 0 to 100."
            ],
        );
        headers(
            None,
            Some("[]"),
            expect![
                "One of the specified inputs is invalid: 'x-ms-cosmos-offer-autopilot-settings' must be an object."
            ],
        );
        headers(
            None,
            Some("{"),
            expect!["Invalid value '{' for header 'x-ms-cosmos-offer-autopilot-settings'."],
        );
        headers(
            Some("400"),
            Some(r#"{"maxThroughput":4000}"#),
            expect![
                "The headers x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings cannot both be specified."
            ],
        );
    }

    fn content(json: &str, expect: Expect) {
        let json = text::parse(json.as_bytes(), Limits::default()).unwrap();
        check(Throughput::from_offer_content(&json).map(Some), expect);
    }

    #[test]
    fn from_content() {
        content(r#"{"offerThroughput":500}"#, expect!["Some(Manual(500))"]);
        content(r#"{"offerThroughput":500,"offerAutopilotSettings":null}"#, expect!["Some(Manual(500))"]);
        content(
            r#"{"offerThroughput":4000,"offerAutopilotSettings":{"maxThroughput":5000}}"#,
            expect!["Some(Autoscale { max: 5000, increment_percent: None })"],
        );
        content(
            r#"{"offerThroughput":-200}"#,
            expect!["Requested throughput -200 is less than required minimum throughput 400."],
        );
        content(
            r#"{"offerThroughput":"500"}"#,
            expect!["One of the specified inputs is invalid: 'content.offerThroughput' must be an integer."],
        );
        content(
            r#"{}"#,
            expect!["One of the specified inputs is invalid: 'content.offerThroughput' must be an integer."],
        );
        content(r#"7"#, expect!["One of the specified inputs is invalid: 'content' must be an object."]);
    }

    #[test]
    fn written_content_is_read_back() {
        let manual = Throughput::Manual(400);
        let autoscale = Throughput::Autoscale { max: 4000, increment_percent: Some(10) };
        let plain = Throughput::Autoscale { max: 4000, increment_percent: None };
        let none = Throughput::Autoscale { max: 4000, increment_percent: Some(0) };
        for throughput in [manual, autoscale, plain, none] {
            let content = Value::from(throughput.to_offer_content(4000, 1_589_000_000));
            assert_eq!(Throughput::from_offer_content(&content), Ok(throughput));
        }
        expect![[r#"{"offerThroughput":400,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":800,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1589000000}"#]].assert_eq(&Value::from(manual.to_offer_content(800, 1_589_000_000)).to_json());
        expect![[r#"{"offerThroughput":4000,"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":4000,"maxConsumedStorageEverInKB":0},"offerLastReplaceTimestamp":1589000000,"offerAutopilotSettings":{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}}"#]].assert_eq(&Value::from(autoscale.to_offer_content(4000, 1_589_000_000)).to_json());
    }

    #[test]
    fn minimum_follows_the_highest_ever() {
        let manual = Throughput::Manual(400);
        let autoscale = Throughput::Autoscale { max: 1000, increment_percent: None };
        assert_eq!(
            [400, 40_000, 50_050, 100_000].map(|highest| manual.minimum(highest)),
            [400, 400, 600, 1000]
        );
        assert_eq!(
            [1000, 10_000, 11_000, 60_000].map(|highest| autoscale.minimum(highest)),
            [1000, 1000, 2000, 6000]
        );
        assert_eq!(manual.check_minimum(40_000), Ok(()));
        let error = manual.check_minimum(100_000).unwrap_err();
        assert_eq!(error.message, "Requested throughput 400 is less than required minimum throughput 1000.");
    }

    #[test]
    fn partitions() {
        let manual = |value| Throughput::Manual(value).partitions();
        assert_eq!([400, 6000, 6100, 10_000, 15_000, 20_000, 30_000].map(manual), [1, 1, 2, 2, 3, 4, 5]);
        let autoscale = |max| Throughput::Autoscale { max, increment_percent: None }.partitions();
        assert_eq!([1000, 10_000, 11_000, 50_000].map(autoscale), [1, 1, 2, 5]);
    }

    #[test]
    fn migration() {
        let autoscale = |max| Throughput::Autoscale { max, increment_percent: None };
        assert_eq!(Throughput::Manual(400).migrated_to_autoscale(400), autoscale(1000));
        assert_eq!(Throughput::Manual(5400).migrated_to_autoscale(5400), autoscale(6000));
        assert_eq!(autoscale(6000).migrated_to_manual(), Throughput::Manual(6000));
    }
}
