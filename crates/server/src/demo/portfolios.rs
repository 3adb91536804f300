//! Portfolios with a copy of the stock in each holding: a price that changes is written to all of them.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const PORTFOLIOS: usize = 300;
const STOCKS: usize = 60;
/// Changes of prices in the day; each is written to every portfolio that holds the stock.
const TICKS: usize = 55;
const READS: usize = 1_300;
const TRADES: usize = 200;
const STEPS: usize = TICKS + READS + TRADES;
const LETTERS: &[u8] = b"ABCDEFGHKLMNOPRSTUVW";

struct Stock {
    symbol: String,
    open: usize,
    high: usize,
    low: usize,
}

/// The numbers of the stocks that a portfolio holds, in the order of its holdings.
type Holdings = Vec<Vec<usize>>;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let mut stocks: Vec<Stock> = (0..STOCKS).map(|number| stock(number, &mut session.random)).collect();
    let holdings: Holdings = (0..PORTFOLIOS).map(|_| chosen(&mut session.random)).collect();
    let portfolios = holdings.iter().enumerate();
    let portfolios: Vec<String> =
        portfolios.map(|(number, held)| portfolio(number, held, &stocks, &mut session.random)).collect();
    session.load(0, &portfolios)?;
    for step in 0..STEPS {
        session.at(step, STEPS);
        if step % (STEPS / TICKS) == 0 {
            tick(session, &mut stocks, &holdings, step)?;
        } else if step % (STEPS / TRADES) == 1 {
            trade(session, &holdings)?;
        } else {
            let number = session.random.below(PORTFOLIOS);
            session.read(0, &id(number))?;
        }
    }
    Ok(())
}

fn id(number: usize) -> String {
    format!("portfolio-{number:04}")
}

fn stock(number: usize, random: &mut Random) -> Stock {
    let letter = |at: usize| char::from(LETTERS[at % LETTERS.len()]);
    let symbol = [number, number / 3 + 7, number * 7 + 3, number / 20].map(letter).iter().collect();
    let open = 400 + random.below(20_000);
    Stock { symbol, open, high: open + random.below(300), low: open - random.below(300) }
}

fn chosen(random: &mut Random) -> Vec<usize> {
    let mut held: Vec<usize> = Vec::new();
    for _ in 0..3 + random.below(7) {
        let stock = random.below(STOCKS);
        if !held.contains(&stock) {
            held.push(stock);
        }
    }
    held
}

/// In hundredths.
fn money(amount: usize) -> String {
    format!("{}.{:02}", amount / 100, amount % 100)
}

fn portfolio(number: usize, held: &[usize], stocks: &[Stock], random: &mut Random) -> String {
    let holding = |own: &usize, random: &mut Random| {
        let Stock { symbol, open, high, low } = &stocks[*own];
        let (count, open, high, low) = (10 * (1 + random.below(90)), money(*open), money(*high), money(*low));
        format!(
            r#"{{"numberHeld":{count},"stock":{{"symbol":"{symbol}","open":{open},"high":{high},"low":{low}}}}}"#
        )
    };
    let holdings = held.iter().map(|own| holding(own, random)).collect::<Vec<_>>().join(",");
    let (id, owner, opened) = (id(number), words::person(number * 3 + 1), words::date(random));
    format!(r#"{{"id":"{id}","owner":"{owner}","opened":"{opened}","holdings":[{holdings}]}}"#)
}

/// A stock reaches a new high or a new low.
fn tick(
    session: &mut Session<'_>,
    stocks: &mut [Stock],
    holdings: &Holdings,
    step: usize,
) -> Result<(), EngineError> {
    let number = session.random.below(STOCKS);
    let stock = &mut stocks[number];
    let (member, value) = match step % 2 {
        0 => {
            stock.high += 5 + session.random.below(60);
            ("high", stock.high)
        }
        _ => {
            stock.low -= 1 + session.random.below(20).min(stock.low / 4);
            ("low", stock.low)
        }
    };
    for (portfolio, held) in holdings.iter().enumerate() {
        if let Some(place) = held.iter().position(|own| *own == number) {
            let value = money(value);
            let change =
                format!(r#"{{"op":"set","path":"/holdings/{place}/stock/{member}","value":{value}}}"#);
            session.patch(0, &id(portfolio), &[change])?;
        }
    }
    Ok(())
}

fn trade(session: &mut Session<'_>, holdings: &Holdings) -> Result<(), EngineError> {
    let number = session.random.below(PORTFOLIOS);
    let place = session.random.below(holdings[number].len());
    let count = 10 * (1 + session.random.below(90));
    let change = format!(r#"{{"op":"set","path":"/holdings/{place}/numberHeld","value":{count}}}"#);
    session.patch(0, &id(number), &[change])
}
