//! The worker process: runs the messages it receives, one after another, until its input ends.
//!
//! It can access only its input and output: see [`confine`](crate::worker::confine()).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::functions::{LoadedFunctions, decode_call};
use crate::worker::confine::confine;
use crate::worker::wire::{Calls, Frame, OwnedRun, OwnedScript, ToWorker, malformed, read_frame, to_worker};
use crate::{
    Answer, Caller, Failure, Host, Limits, Operation, Request, Script, ScriptError, Scripts, Spatial,
};

/// CPU time of a run beyond its time limit, in seconds.
const PROCESSOR_SECONDS_MORE: u64 = 3;
/// Calls of functions are answered together until they have taken this long, or their values are this large.
pub(crate) const CALLS_TIME: Duration = Duration::from_millis(50);
const VALUES_BYTES_MAX: usize = 4 << 20;

/// Serves runs on standard input and output. Returns when the server has closed its end.
pub fn serve(spatial: Option<Spatial>) -> ExitCode {
    match Worker::start(spatial).and_then(Worker::work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Worker {
    scripts: Scripts,
    /// The functions of the current page.
    functions: Option<LoadedFunctions>,
    pipe: Pipe,
}

/// The server at the other end.
struct Pipe {
    input: BufReader<File>,
    output: File,
}

impl Worker {
    fn start(spatial: Option<Spatial>) -> io::Result<Worker> {
        // The standard streams search for line ends.
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut output = output;
        Frame::ready(confine()?).send(&mut output)?;
        let mut scripts = Scripts::new(Limits::default());
        scripts.set_spatial(spatial);
        Ok(Worker { scripts, functions: None, pipe: Pipe { input: BufReader::new(input), output } })
    }

    fn work(mut self) -> io::Result<()> {
        loop {
            match self.pipe.receive()? {
                None => return Ok(()),
                Some(ToWorker::Run { limits, run }) => {
                    self.functions = None;
                    self.run(&limits, run)?;
                }
                Some(ToWorker::Calls(calls)) => self.call(calls)?,
                Some(ToWorker::Release) => self.functions = None,
                Some(_) => return Err(malformed()),
            }
        }
    }

    fn run(&mut self, limits: &Limits, mut run: Box<OwnedRun>) -> io::Result<()> {
        limit_processor_time(limits.time)?;
        if run.body.is_none() && !self.scripts.is_loaded(run.version()) {
            Frame::needs_text().send(&mut self.pipe.output)?;
            let Some(ToWorker::Text(text)) = self.pipe.receive()? else { return Err(malformed()) };
            run.body = Some(text);
        }
        let result = run.with(|run| self.scripts.run_limited(run, limits, &mut self.pipe));
        let frame = match result {
            Ok(outcome) => Frame::done(&outcome),
            Err(failure) => Frame::failed(&failure),
        };
        frame.send(&mut self.pipe.output)
    }

    fn call(&mut self, calls: Calls) -> io::Result<()> {
        let Calls { load, count, encoded } = calls;
        if let Some((limits, scripts)) = load {
            limit_processor_time(limits.function_time)?;
            match self.load(&limits, &scripts) {
                Ok(functions) => self.functions = Some(functions),
                Err(frame) => return frame.send(&mut self.pipe.output),
            }
        }
        let functions = self.functions.as_mut().ok_or_else(malformed)?;
        limit_processor_time(functions.limits().function_time)?;
        let (started, mut frame, mut done, mut rest) = (Instant::now(), Frame::values(), 0, &encoded[..]);
        while done < count as u64 && (done == 0 || started.elapsed() < CALLS_TIME) {
            let (index, arguments) = decode_call(&mut rest).ok_or_else(malformed)?;
            functions.renew_if_due();
            let value = functions.call(index, &arguments);
            let is_fit = value.as_ref().err().is_none_or(ScriptError::leaves_runtime_usable);
            frame = frame.value(&value);
            done += 1;
            if !is_fit || frame.len() > VALUES_BYTES_MAX {
                break;
            }
        }
        frame.counted(done).send(&mut self.pipe.output)
    }

    /// Loads functions, or returns the frame to answer.
    fn load(&mut self, limits: &Limits, scripts: &[OwnedScript]) -> Result<LoadedFunctions, Frame> {
        self.functions = None;
        let is_known =
            |script: &OwnedScript| script.body.is_some() || self.scripts.is_loaded(&script.version);
        if !scripts.iter().all(is_known) {
            return Err(Frame::needs_text());
        }
        let text = |script: &OwnedScript| script.body.clone().unwrap_or_default();
        let bodies: Vec<String> = scripts.iter().map(text).collect();
        let scripts: Vec<Script<'_>> = scripts
            .iter()
            .zip(&bodies)
            .map(|(script, body)| Script { version: &script.version, body })
            .collect();
        let loaded = self.scripts.load_functions(&scripts, *limits, &Caller::default());
        loaded.map_err(|error| Frame::failed(&Failure { error, log: None }))
    }
}

impl Pipe {
    fn receive(&mut self) -> io::Result<Option<ToWorker>> {
        match read_frame(&mut self.input)? {
            None => Ok(None),
            Some(frame) => to_worker(&frame).map(Some).ok_or_else(malformed),
        }
    }
}

impl Host for Pipe {
    fn call(&mut self, request: Request) -> Answer {
        let mut waiting = VecDeque::from([Operation { request, has_callback: true }]);
        self.call_next(&mut waiting).remove(0)
    }

    fn call_next(&mut self, waiting: &mut VecDeque<Operation>) -> Vec<Answer> {
        let answers = Frame::operations(waiting.iter()).send(&mut self.output).and_then(|()| self.receive());
        match answers {
            Ok(Some(ToWorker::Answers(answers))) if answers.len() <= waiting.len() => {
                waiting.drain(..answers.len());
                answers
            }
            // The server has gone or sends invalid messages: there is nobody to report to.
            _ => std::process::exit(1),
        }
    }
}

#[cfg(unix)]
fn limit_processor_time(time: Duration) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.cast_unsigned();
    let current = used + time.as_secs() + PROCESSOR_SECONDS_MORE;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(current), maximum: None })?)
}

#[cfg(not(unix))]
fn limit_processor_time(_: Duration) -> io::Result<()> {
    Ok(())
}
