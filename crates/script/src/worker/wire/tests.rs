//! Frames encoded and decoded again, and invalid frames.

use quire_testkit::Random;
use quire_value::Value;

use super::*;
use crate::functions::FunctionCall;
use crate::host::OPERATIONS_MAX;
use crate::values::ScriptValue;
use crate::{IndexAction, ItemLink, Position, Reply, Request, ScriptError};

fn sent(frame: Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.send(&mut bytes).unwrap();
    read_frame(&mut bytes.as_slice()).unwrap().unwrap()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn requests_come_back_as_they_were() {
    let item = ItemLink::Id("ü".to_owned());
    for request in [
        Request::Read { item: ItemLink::Rid("r".to_owned()), if_none_match: text("e") },
        Request::ReadFeed { page_size: 7, continuation: None },
        Request::Query { text: "q".into(), parameters: text("[]"), page_size: 1, continuation: text("c") },
        Request::Create { body: "{}".into(), index_action: IndexAction::Exclude },
        Request::Upsert { body: "{}".into(), if_match: None, index_action: IndexAction::Include },
        Request::Replace {
            item: item.clone(),
            body: "{}".into(),
            if_match: None,
            index_action: IndexAction::Default,
        },
        Request::Delete { item, if_match: text(""), partition_key: text("[1]") },
    ] {
        let operations =
            [true, false].map(|has_callback| Operation { request: request.clone(), has_callback });
        let frame = sent(Frame::operations(operations.iter()));
        let Some(FromWorker::Operations(read)) = from_worker(&frame) else { panic!("{request:?}") };
        assert_eq!(read, operations);
        for length in 0..frame.len() {
            assert!(from_worker(&frame[..length]).is_none(), "{request:?} cut at {length}");
        }
    }
}

#[test]
fn answers_and_results_come_back_as_they_were() {
    for reply in [
        Reply::Item { status: 201, body: "{}".into() },
        Reply::NotModified,
        Reply::Deleted,
        Reply::Page { items: "[]".into(), continuation: text("c") },
        Reply::Error { status: 409, message: "m".into() },
        Reply::Stop,
    ] {
        let answer = Answer { reply, accepting: false };
        let answers = [answer.clone(), Answer { accepting: true, ..answer }];
        let Some(ToWorker::Answers(read)) = to_worker(&sent(Frame::answers(&answers))) else {
            panic!("{answers:?}")
        };
        assert_eq!(read, answers);
    }
    for error in [
        ScriptError::Compile { message: "m".into(), position: Some(Position { line: 3, column: 4 }) },
        ScriptError::TooLong { length: 5, length_max: 4 },
        ScriptError::Parameters { count_max: 9 },
        ScriptError::Thrown { number: Some(-3), message: "m".into(), stack: "s".into() },
        ScriptError::TimedOut,
        ScriptError::OutOfMemory { limit_bytes: 1 },
        ScriptError::Stopped,
        ScriptError::Engine { message: "m".into() },
        ScriptError::Result { what: "a symbol" },
    ] {
        let failure = Failure { error, log: text("l") };
        let Some(FromWorker::Failed(read)) = from_worker(&sent(Frame::failed(&failure))) else { panic!() };
        assert_eq!(read, failure);
    }
    let outcome = Outcome { body: text("1"), log: None, unhandled_rejections: 2 };
    let Some(FromWorker::Done(read)) = from_worker(&sent(Frame::done(&outcome))) else { panic!() };
    assert_eq!(read, outcome);
}

#[test]
fn runs_come_back_as_they_were() {
    let run = ScriptRun {
        script: Script { version: "v", body: "b" },
        call: Call::PostTrigger {
            operation: TriggerOperation::Upsert,
            request_body: Some("1"),
            response_body: None,
        },
        collection: Collection {
            self_link: "s",
            alt_link: "a",
            usage: "u",
            quota: "q",
            partition_key: "[]",
            planar: true,
        },
        headers: &[("n", "v")],
        logging: true,
        time_used: Duration::ZERO,
    };
    let limits = Limits { log_bytes: 77, ..Limits::default() };
    let Some(ToWorker::Run { limits: read_limits, run: read }) =
        to_worker(&sent(Frame::run(&limits, &run, false)))
    else {
        panic!()
    };
    assert_eq!(format!("{read_limits:?}"), format!("{limits:?}"));
    let expected = format!("{:?}", ScriptRun { script: Script { version: "v", body: "" }, ..run });
    assert_eq!(read.with(|read| format!("{read:?}")), expected);
}

#[test]
fn calls_and_their_values_come_back_as_they_were() {
    let call = FunctionCall::new(3, &[Value::Undefined, Value::from("ü"), Value::from(0.5)]);
    let script = Script { version: "v", body: "b" };
    let load = Some((&Limits::default(), [(script, true), (script, false)].into_iter()));
    let Some(ToWorker::Calls(read)) = to_worker(&sent(Frame::calls(load, &[call.clone(), call.clone()])))
    else {
        panic!()
    };
    let (_, scripts) = read.load.unwrap();
    let bodies: Vec<_> = scripts.iter().map(|script| script.body.as_deref()).collect();
    assert_eq!((scripts[1].version.as_str(), bodies), ("v", vec![Some("b"), None]));
    assert_eq!((read.count, read.encoded), (2, call.0.repeat(2)));
    let values =
        [Ok(ScriptValue::Json("[1]".into())), Err(ScriptError::TimedOut), Ok(ScriptValue::Float(f64::NAN))];
    let frame = values.iter().fold(Frame::values(), Frame::value).counted(3);
    let Some(FromWorker::Values(read)) = from_worker(&sent(frame)) else { panic!() };
    let expected = [Ok(Value::Array(vec![Value::from(1)])), Err(ScriptError::TimedOut), Ok(Value::Undefined)];
    assert_eq!(read, expected);
}

/// Frames of every kind with random changes: decoded or refused, and a decoded message is no longer than the frame.
#[test]
fn changed_frames_are_read_or_refused() {
    let call = FunctionCall::new(1, &[Value::from("ü"), Value::from(7), Value::Undefined]);
    let script = Script { version: "v", body: "b" };
    let load = Some((&Limits::default(), [(script, true)].into_iter()));
    let value = Ok(ScriptValue::Json(r#"{"a": [1, null]}"#.into()));
    let failure = Failure { error: ScriptError::Result { what: "a symbol" }, log: text("l") };
    let outcome = Outcome { body: text("1"), log: None, unhandled_rejections: 2 };
    let request = Request::Create { body: "{}".into(), index_action: IndexAction::Include };
    let operation = Operation { request, has_callback: true };
    let frames: Vec<Vec<u8>> = [
        Frame::calls(load, &[call.clone(), call]),
        Frame::values().value(&value).value(&Err(ScriptError::TimedOut)).counted(2),
        Frame::failed(&failure),
        Frame::done(&outcome),
        Frame::ready(Confinement { calls: true, files: false }),
        Frame::release(),
        Frame::script_text("x => x"),
        Frame::answers(&[
            Reply::Page { items: "[]".into(), continuation: text("c") }.into(),
            Reply::Deleted.into(),
        ]),
        Frame::operations([operation.clone(), operation].iter()),
    ]
    .into_iter()
    .map(sent)
    .collect();
    let (mut random, mut taken) = (Random(7), 0);
    let mut next = |below: usize| random.below(below);
    for round in 0..100_000 {
        let mut frame = frames[round % frames.len()].clone();
        for _ in 0..next(4) {
            let at = next(frame.len());
            match next(4) {
                0 => frame.truncate(at),
                1 => frame.insert(at, next(256) as u8),
                2 => frame.extend_from_within(at..),
                _ => {
                    if let Some(byte) = frame.get_mut(at) {
                        *byte = [0, 1, 0x7F, 0xFF, next(256) as u8][next(5)];
                    }
                }
            }
        }
        taken += usize::from(is_worker_message(&frame));
        if let Some(written) = worker_message_rewritten(&frame) {
            assert!(written.len() <= frame.len());
            assert_eq!(worker_message_rewritten(&written).as_ref(), Some(&written));
        }
    }
    assert!(taken > 10_000 && taken < 90_000, "{taken}");
}

#[test]
fn bad_frames_are_refused() {
    for frame in [&[][..], &[9], &[1, 1], &[2, 0, 7], &[2, 3, 255, 255, 255, 255, 255, 255, 255, 255]] {
        assert!(from_worker(frame).is_none(), "{frame:?}");
    }
    let request = Request::ReadFeed { page_size: 1, continuation: None };
    let operations = vec![Operation { request, has_callback: true }; OPERATIONS_MAX + 1];
    assert!(from_worker(&sent(Frame::operations(operations[1..].iter()))).is_some());
    assert!(from_worker(&sent(Frame::operations(operations.iter()))).is_none(), "too many");
    assert!(from_worker(&sent(Frame::operations([].iter()))).is_none(), "none");
    let huge = u32::MAX.to_le_bytes();
    assert!(read_frame(&mut huge.as_slice()).is_err());
    assert!(read_frame(&mut [8, 0, 0, 0, 1].as_slice()).unwrap().is_none());
}
