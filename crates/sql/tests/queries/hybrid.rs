//! What a client does with the plan of an ORDER BY RANK, modelled on real clients.

use quire_sql::ast::Direction;
use quire_sql::{HybridSearch, SqlError};
use quire_testkit::qt::QuerySetup;
use quire_value::Value;

use crate::{all_at_once, compile};

pub fn run(hybrid: &HybridSearch, setup: &QuerySetup) -> Result<Vec<Value>, SqlError> {
    let items: Vec<Value> = setup.items.iter().enumerate().map(|(at, item)| with_rid(item, at)).collect();
    let (left, right) = items.split_at(items.len() / 2);
    let partitions = [left, &[], right];
    let mut statistics = Vec::new();
    if hybrid.requires_global_statistics {
        let query = compile(setup, &hybrid.global_statistics_query)?;
        for partition in partitions {
            statistics.extend(all_at_once(setup, &query, partition)?);
        }
    }
    let mut rows: Vec<Value> = Vec::new();
    for component in &hybrid.components {
        let query = compile(setup, &filled(&component.rewritten_query, &statistics))?;
        for partition in partitions {
            for row in all_at_once(setup, &query, partition)? {
                if !rows.iter().any(|known| known.get("_rid") == row.get("_rid")) {
                    rows.push(row);
                }
            }
        }
    }
    rows.sort_by(|left, right| left.get("_rid").cmp(&right.get("_rid")));
    let fused = fused(hybrid, &rows);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|left, right| fused[*right].total_cmp(&fused[*left]));
    let take = hybrid.take.map_or(usize::MAX, |take| take as usize);
    let skip = hybrid.skip.unwrap_or(0) as usize;
    Ok(order.into_iter().skip(skip).take(take).filter_map(|row| payload(&rows[row])).collect())
}

fn with_rid(item: &Value, at: usize) -> Value {
    let mut item = item.clone();
    if let Value::Object(object) = &mut item {
        object.set("_rid", format!("{at:08}"));
    }
    item
}

fn payload(row: &Value) -> Option<Value> {
    let mut payload = row.get("payload")?.get("payload")?.clone();
    if let Value::Object(object) = &mut payload {
        object.remove("_rid");
    }
    Some(payload)
}

/// Replaces the placeholders by the sums of all partitions.
fn filled(text: &str, statistics: &[Value]) -> String {
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or(0);
    let documents: i64 = statistics.iter().map(|row| number(row.get("documentCount"))).sum();
    let mut text = text
        .replace("{documentdb-formattableorderbyquery-filter}", "true")
        .replace("{documentdb-formattablehybridsearchquery-totaldocumentcount}", &documents.to_string());
    let texts =
        statistics.first().and_then(|row| row.get("fullTextStatistics")?.as_array()).unwrap_or_default();
    for (index, first) in texts.iter().enumerate() {
        let each = || statistics.iter().filter_map(|row| row.get("fullTextStatistics")?.at(index));
        let words: i64 = each().map(|text| number(text.get("totalWordCount"))).sum();
        let hit_counts = first.get("hitCounts").and_then(Value::as_array).unwrap_or_default();
        let hits: Vec<String> = (0..hit_counts.len())
            .map(|term| {
                each().map(|text| number(text.get("hitCounts").and_then(|hits| hits.at(term)))).sum::<i64>()
            })
            .map(|hits| hits.to_string())
            .collect();
        let place = |name: &str| format!("{{documentdb-formattablehybridsearchquery-{name}-{index}}}");
        text = text.replace(&place("totalwordcount"), &words.to_string());
        text = text.replace(&place("hitcountsarray"), &format!("[{}]", hits.join(",")));
    }
    text
}

fn fused(hybrid: &HybridSearch, rows: &[Value]) -> Vec<f64> {
    let score = |row: &Value, component: usize| {
        row.get("payload")
            .and_then(|payload| payload.get("componentScores")?.at(component)?.as_number())
            .expect("every row has every score")
            .as_f64()
    };
    let mut fused = vec![0.0; rows.len()];
    for (index, component) in hybrid.components.iter().enumerate() {
        let ascending = component.order_by == [Direction::Ascending];
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|left, right| {
            let ordering = score(&rows[*left], index).total_cmp(&score(&rows[*right], index));
            if ascending { ordering } else { ordering.reverse() }
        });
        let weight = hybrid.component_weights.get(index).map_or(1.0, |weight| weight.as_f64());
        let mut rank = 0.0;
        let mut last = None;
        for row in order {
            let score = score(&rows[row], index);
            if last != Some(score) {
                rank += 1.0;
                last = Some(score);
            }
            fused[row] += weight / (60.0 + rank);
        }
    }
    fused
}
