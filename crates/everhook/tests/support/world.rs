//! A server with a receiver and a load around it, through many deaths.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::api::{Api, Delivery};
use super::check::{self, Broken, Evidence, Life, Violation};
use super::intake::SOURCES;
use super::load::{Answers, Load, Said};
use super::orders::Sort;
use super::receiver::{Receiver, Target};
use super::server::{Ended, Env, Server, Setup, tail};
use super::{now, pause};

/// Everything that is due must have been sent by then.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait before looking again whether something is left.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a process is to end of comes to it by then, under load.
const END_LIMIT: Duration = Duration::from_secs(20);
/// SIGKILL.
const KILLED: i32 = 9;

/// A server with a receiver and a load around it.
#[derive(Debug)]
pub(crate) struct World {
    receiver: Receiver,
    load: Load,
    log: PathBuf,
    server: Option<Server>,
    lives: Vec<Life>,
    targets: HashMap<String, Target>,
    /// Accepted events that were judged before.
    judged: usize,
    /// Deliveries that were judged before, with the numbers of their requests and interruptions.
    ended: HashMap<(String, Target), (usize, u32)>,
    /// No delivery older than this is open.
    since: Option<String>,
}

impl World {
    /// A world without a server.
    pub(crate) fn new(log: PathBuf, seed: u64) -> Self {
        Self {
            receiver: Receiver::start(),
            load: Load::new(seed),
            log,
            server: None,
            // Nothing arrives before the first life, which is number 1.
            lives: vec![Life::default()],
            targets: HashMap::new(),
            judged: 0,
            ended: HashMap::new(),
            since: None,
        }
    }

    /// Starts the next life on this data, with this in its environment. Gives the process back if
    /// it ended before it was ready.
    pub(crate) fn start(&mut self, data_dir: &Path, env: Env) -> Result<(), Ended> {
        let setup = self.next_life(data_dir, env);
        match Server::start(&setup) {
            Ok(server) => {
                self.lives.push(Life { ready: Some(server.ready), died: None });
                self.server = Some(server);
                Ok(())
            }
            Err(ended) => {
                self.lives.push(Life { ready: None, died: Some(ended.at) });
                Err(ended)
            }
        }
    }

    fn next_life(&self, data_dir: &Path, env: Env) -> Setup {
        assert!(self.server.is_none(), "one server at a time");
        assert_eq!(self.receiver.next_life(), self.lives.len());
        Setup { data_dir: data_dir.to_owned(), log: self.log.clone(), env }
    }

    /// Starts the next life, waits for everything, and judges.
    pub(crate) fn recover(&mut self, data_dir: &Path, env: Env) -> Vec<Violation> {
        match self.start(data_dir, env) {
            Ok(()) => self.drain_and_judge(),
            Err(ended) => {
                let what = format!("it does not start ({}): {}", ended.status, tail(&self.log));
                vec![Violation { broken: Broken::Unusable, what }]
            }
        }
    }

    /// Starts the next life and demands that it becomes ready. Makes the endpoints the first time.
    pub(crate) fn start_ready(&mut self, data_dir: &Path, env: Env) {
        if let Err(ended) = self.start(data_dir, env) {
            panic!("it does not start ({}):\n{}", ended.status, tail(&self.log));
        }
        if self.targets.is_empty() {
            let mut api = self.api();
            for source in SOURCES {
                api.make_source(&source.settings());
            }
            for target in Target::ALL {
                let (url, types) = (self.receiver.url(target), Sort::subscription(target));
                let names = SOURCES.map(|source| source.name);
                let sources = if types.is_none() { &names[..] } else { &[] };
                let id = api.make_endpoint(&url, types.as_slice(), sources);
                self.targets.insert(id, target);
            }
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("a running server")
    }

    /// Where the running server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server().address
    }

    fn life(&self) -> usize {
        self.lives.len() - 1
    }

    fn api(&self) -> Api {
        Api::open(self.address())
    }

    fn died(&mut self, ended: &Ended) {
        let life = self.life();
        self.lives[life].died = Some(ended.at);
    }

    /// Kills the process where it stands.
    pub(crate) fn kill(&mut self) {
        let ended = self.server.take().expect("a running server").kill();
        self.died(&ended);
    }

    /// Presses events into the server and kills it a moment after so many were accepted.
    pub(crate) fn press_and_kill(&mut self, accepted: u64, moment: Duration) {
        let server = self.server.take().expect("a running server");
        let (address, life) = (server.address, self.life());
        let log = &self.log;
        let ended = self.load.press(address, life, |answers| {
            if let Err(seen) = answers.wait(Said::Accepted, accepted) {
                panic!("only {seen} of {accepted} were accepted:\n{}", tail(log));
            }
            pause(moment);
            server.kill()
        });
        self.died(&ended);
    }

    /// Presses events into the server while `watch` runs.
    pub(crate) fn press<T>(&mut self, watch: impl FnOnce(&Answers) -> T) -> T {
        let (address, life) = (self.address(), self.life());
        self.load.press(address, life, watch)
    }

    /// Starts the next life and kills it so long after its start, whatever it is doing.
    pub(crate) fn start_and_kill(&mut self, data_dir: &Path, env: Env, moment: Duration) {
        let setup = self.next_life(data_dir, env);
        let ended = Server::start_and_kill(&setup, moment);
        self.lives.push(Life { ready: None, died: Some(ended.at) });
    }

    /// Posts an event that kills the server, as if by its payload: whenever it is sent, the server
    /// dies, and starts again where `next` says. Ends when it is not sent any more; returns how
    /// often it was.
    pub(crate) fn poison(&mut self, mut next: impl FnMut() -> (PathBuf, Env)) -> u32 {
        self.load.order("poison", Sort::Fatal);
        let mut deaths = 0;
        loop {
            let (address, life) = (self.address(), self.life());
            self.load.press_unanswered(address, life);
            if !self.receiver.fatal_request(deaths) {
                return deaths;
            }
            self.kill();
            deaths += 1;
            let (data_dir, env) = next();
            self.start_ready(&data_dir, env);
        }
    }

    /// Presses events into the server while `watch` runs and until it ends by itself; `None` if it
    /// goes on, which it may for some seconds.
    pub(crate) fn press_until_end(&mut self, watch: impl FnOnce(&Answers)) -> Option<Ended> {
        let server = self.server.take().expect("a running server");
        let (address, life) = (server.address, self.life());
        let ended = self.load.press(address, life, |answers| {
            watch(answers);
            server.end(END_LIMIT)
        });
        match ended {
            Ok(ended) => {
                self.died(&ended);
                Some(ended)
            }
            Err(alive) => {
                self.server = Some(alive);
                None
            }
        }
    }

    /// Posts what had no answer, waits until nothing is left to send, and judges everything that
    /// was accepted since the last time.
    pub(crate) fn drain_and_judge(&mut self) -> Vec<Violation> {
        let (address, life) = (self.address(), self.life());
        self.load.press_unanswered(address, life);
        let mut api = self.api();
        let query = self.since.as_ref().map_or(String::new(), |since| format!("&from={since}"));
        let began = now();
        // Read in one list: what is neither due nor leased there stays so.
        let listed = loop {
            let listed = api.deliveries(&query);
            let ended = listed.iter().all(Delivery::has_ended);
            if ended || self.receiver.is_flooded() || now() > began + DRAIN_LIMIT {
                break listed;
            }
            let server = self.server.as_mut().expect("a running server");
            assert!(server.lives_on(LOOK_EVERY), "it died unasked:\n{}", tail(&self.log));
        };
        self.load.name_received(&api.receipts());
        let deliveries = self.detailed(&mut api, listed);
        let accepted = &self.load.accepted()[self.judged..];
        let arrivals = self.receiver.arrivals();
        let lives = &self.lives;
        let evidence = Evidence { accepted, arrivals: &arrivals, deliveries: &deliveries, lives };
        let mut found = check::violations(&evidence);
        for accepted in accepted.iter().filter(|accepted| accepted.deliveries == 0) {
            if !api.has_event(&accepted.event) {
                let what = format!("{} is not there", accepted.event);
                found.push(Violation { broken: Broken::Lost, what });
            }
        }
        let wrong = self.load.take_wrong().into_iter().chain(self.receiver.strange());
        found.extend(wrong.map(|what| Violation { broken: Broken::Wrong, what }));
        self.judged = self.load.accepted().len();
        for (delivery, target) in deliveries {
            if self.since.as_ref().is_none_or(|since| *since < delivery.created_at) {
                self.since = Some(delivery.created_at);
            }
            let key = (delivery.event_id, target);
            let requests = arrivals.get(&key).map_or(0, Vec::len);
            self.ended.insert(key, (requests, delivery.interruptions));
        }
        found
    }

    /// The listed deliveries that were not judged before, with their attempts and targets.
    fn detailed(&self, api: &mut Api, listed: Vec<Delivery>) -> Vec<(Delivery, Target)> {
        let with_target = listed.into_iter().filter_map(|delivery| {
            let target = *self.targets.get(&delivery.endpoint_id)?;
            let new = !self.ended.contains_key(&(delivery.event_id.clone(), target));
            new.then_some((delivery, target))
        });
        with_target
            .filter_map(|(delivery, target)| Some((api.delivery(&delivery.id)?, target)))
            .collect()
    }

    /// Judges the whole of it: everything ever accepted is there and has ended, and nothing was
    /// sent after its end.
    pub(crate) fn judge_all(&mut self) -> Vec<Violation> {
        let mut found = Vec::new();
        let listed = self.api().deliveries("");
        let targets = &self.targets;
        let there: HashSet<(&str, Target)> = listed
            .iter()
            .filter(|delivery| delivery.has_ended())
            .filter_map(|delivery| {
                Some((delivery.event_id.as_str(), *targets.get(&delivery.endpoint_id)?))
            })
            .collect();
        for accepted in self.load.accepted() {
            for target in accepted.planned.sort.targets() {
                if !there.contains(&(accepted.event.as_str(), *target)) {
                    let what = format!("{} to {target:?} has gone since", accepted.event);
                    found.push(Violation { broken: Broken::Lost, what });
                }
            }
        }
        for (key, arrivals) in self.receiver.arrivals() {
            if self.ended.get(&key).map(|(requests, _)| *requests) != Some(arrivals.len()) {
                let what = format!("{key:?} was sent after its end, or is not listed");
                found.push(Violation { broken: Broken::Repeated, what });
            }
        }
        found
    }

    /// How many lines all lives have logged so far.
    pub(crate) fn lines_logged(&self) -> usize {
        std::fs::read_to_string(&self.log).map_or(0, |text| text.lines().count())
    }

    /// The most interruptions of a judged delivery to any other target.
    pub(crate) fn most_interrupted_but(&self, target: Target) -> u32 {
        let others = self.ended.iter().filter(|((_, own), _)| *own != target);
        others.map(|(_, (_, interruptions))| *interruptions).max().unwrap_or_default()
    }

    /// What happened, in one line.
    pub(crate) fn summary(&self) -> String {
        let arrivals = self.receiver.arrivals();
        let requests: usize = arrivals.values().map(Vec::len).sum();
        let deaths = self.lives.iter().filter(|life| life.died.is_some()).count();
        let (repeats, unrecorded) = check::repeats(&arrivals, &self.lives);
        format!(
            "{deaths} deaths, {} events accepted, {} deliveries, {requests} requests, {repeats} of \
             them repeats of one that was on the wire or answered at most {unrecorded:.1?} before \
             the death",
            self.load.accepted().len(),
            self.ended.len(),
        )
    }
}

/// Whether a process ended by SIGKILL.
pub(crate) fn was_killed(ended: &Ended) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    ended.status.signal() == Some(KILLED)
}
