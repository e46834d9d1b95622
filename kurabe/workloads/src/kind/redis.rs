//! Redis with its append-only file: clients of kurabe's own set keys over the server's socket, each waiting for the
//! answer, and every latency is kept.
//!
//! Where the power is cut, each client sets keys of its own, numbered; what is left must have all that were answered.
//! The client speaks the Redis serialization protocol, version 2, as Redis's documentation describes it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use measure::acknowledge::Acknowledger;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use vocabulary::kind::{Form, KeyError, WorkloadKey, WorkloadKind, Written};
use vocabulary::suggestion::unknown;
use vocabulary::words::counted;
use vocabulary::workload::{Loss, WorkloadTask};

use super::database::{
    Clients, CommitFigures, Database, DatabaseWorkload, SEED, ServerPurpose, TIME, clients_of,
    missing_commit, settings_text,
};
use crate::server::{DatabaseServer, socket_place};
use crate::tool::WorkloadTool;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<DatabaseWorkload<RedisWorkload>>(
    "redis",
    &[
        WorkloadKey::load(
            "redis",
            Form::Text("CLIENTS"),
            "Set keys of the installed Redis, with its append-only file: '8 appendfsync=always keys=100000 value-size=200' is 8 clients and the defaults (docs/reference/databases.md).",
        ),
        TIME,
    ],
    &[],
)
.server();

const CLIENTS_MAX: u32 = 1000;
const KEYS_MAX: u32 = 100_000_000;
const WORDS: [&str; 3] = ["appendfsync", "keys", "value-size"];
const APPENDFSYNC: [&str; 3] = ["always", "everysec", "no"];
/// Settings of Redis that a workload can have besides.
const SETTINGS: [&str; 5] = [
    "no-appendfsync-on-rewrite",
    "auto-aof-rewrite-percentage",
    "auto-aof-rewrite-min-size",
    "aof-use-rdb-preamble",
    "io-threads",
];
/// Bytes of a key, and what a record of the append-only file takes besides key and value.
const KEY_BYTES: u64 = 14;
const RECORD_MORE_BYTES: u64 = 40;
/// The size from which on the file is rewritten: Redis's default.
const REWRITE_BYTES: u64 = 64 << 20;
/// Keys that are sent before their answers are read.
const PIPELINE: u32 = 500;
/// How often is looked whether the file has been rewritten.
const POLL: Duration = Duration::from_millis(20);
/// Bytes of one answer, and how deep answers may be within one another.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const ANSWER_DEPTH_MAX: u32 = 4;
const SOCKET: &str = "redis.sock";
const REWRITES: &str = "aof_rewrites";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RedisWorkload {
    clients: u32,
    appendfsync: String,
    keys: u32,
    value_bytes: u32,
    seconds: u32,
    /// Further settings of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<(String, String)>,
}

impl RedisWorkload {
    fn of_text(text: &str, seconds: u32) -> Result<RedisWorkload, String> {
        let (clients, words) = clients_of(text, "clients", CLIENTS_MAX)?;
        let mut load = RedisWorkload {
            clients,
            appendfsync: APPENDFSYNC[0].into(),
            keys: 100_000,
            value_bytes: 200,
            seconds,
            settings: Vec::new(),
        };
        for word in words {
            match word.name {
                "appendfsync" => load.appendfsync = word.one_of("appendfsync", &APPENDFSYNC)?,
                "keys" => load.keys = word.whole(KEYS_MAX)?,
                "value-size" => load.value_bytes = word.value_bytes()?,
                name if SETTINGS.contains(&name) => {
                    load.settings.push((name.into(), word.value.into()));
                }
                name => {
                    let known: Vec<&str> = WORDS.into_iter().chain(SETTINGS).collect();
                    return Err(unknown("setting of Redis is called", name, &known));
                }
            }
        }
        Ok(load)
    }

    /// A key that is there before the run.
    fn key(number: u64) -> String {
        format!("key:{number:010}")
    }

    /// The values of one client: as random as the seed, so that nothing compresses them.
    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = vec![0; self.value_bytes as usize];
        ChaCha8Rng::seed_from_u64(SEED ^ number).fill_bytes(&mut value);
        value
    }
}

impl Database for RedisWorkload {
    const TOOLS: &'static [WorkloadTool] = &[WorkloadTool::Redis];
    const DIRECTORY: &'static str = "redis";
    const METRIC: &'static str = "sets";
    const NEEDS: (&'static str, &'static str) = (
        "the append-only file, and its copy while it is rewritten, need",
        "take fewer keys= or a smaller value-size=, or give a larger device",
    );
    type Server = Redis;

    fn parse(written: &Written<'_>, seconds: u32) -> Result<RedisWorkload, KeyError> {
        RedisWorkload::of_text(written.text("redis").unwrap_or_default(), seconds)
            .map_err(|problem| KeyError::new("redis", problem))
    }

    fn seconds(&self) -> u32 {
        self.seconds
    }

    fn amount(&self) -> String {
        let clients = counted(self.clients as usize, "client");
        format!("{clients}, {} keys of {} bytes", self.keys, self.value_bytes)
    }

    fn needed_bytes(&self) -> u64 {
        let record = KEY_BYTES + RECORD_MORE_BYTES + u64::from(self.value_bytes);
        let file = u64::from(self.keys) * record;
        // It grows to twice its size before it is rewritten, and the copy is there before it goes.
        2 * file.max(REWRITE_BYTES / 2) + file
    }

    fn plan(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("clients", self.clients.to_string()),
            ("appendfsync", self.appendfsync.clone()),
            ("keys", format!("{} of {} bytes", self.keys, self.value_bytes)),
        ];
        if !self.settings.is_empty() {
            lines.push(("settings", settings_text(&self.settings)));
        }
        lines
    }

    fn create(&self, data: &Path, _stop: &AtomicBool) -> Result<(), String> {
        fs::create_dir(data).map_err(|error| format!("making {}: {error}", data.display()))
    }

    fn start(
        &self,
        task: &WorkloadTask,
        data: &Path,
        purpose: ServerPurpose,
        stop: &AtomicBool,
    ) -> Result<Redis, String> {
        let place = socket_place(task);
        let appendfsync = match purpose {
            ServerPurpose::Load => "always",
            ServerPurpose::Run => &self.appendfsync,
            ServerPurpose::Check => "no",
        };
        let mut server = DatabaseServer::start(WorkloadTool::Redis, |command| {
            command.args(["--port", "0", "--save", "", "--appendonly", "yes"]);
            command.args(["--daemonize", "no", "--appendfsync", appendfsync]);
            command.arg("--unixsocket").arg(place.join(SOCKET)).arg("--dir").arg(data);
            if purpose == ServerPurpose::Run {
                for (name, value) in &self.settings {
                    command.arg(format!("--{name}")).arg(value);
                }
            }
        })?;
        // While it reads its file, it answers that it is loading.
        server.wait_until(stop, || {
            let mut client = RedisConnection::connect(&place).ok()?;
            client.ask(&[b"PING"]).ok()
        })?;
        Ok(Redis { server, place })
    }

    fn load(&self, server: &mut Redis, stop: &AtomicBool) -> Result<(), String> {
        let mut client = server.client()?;
        let mut number = 0;
        while number < self.keys {
            let end = self.keys.min(number + PIPELINE);
            for number in number..end {
                let key = RedisWorkload::key(number.into());
                client.send(&[b"SET", key.as_bytes(), &self.value(number.into())]);
            }
            for _ in number..end {
                client.answer()?;
            }
            number = end;
            if stop.load(Ordering::SeqCst) {
                return Err("stopped".into());
            }
        }
        Ok(())
    }

    /// Rewrites the file, so that a run begins with the smallest one.
    fn checkpoint(&self, server: &mut Redis) -> Result<(), String> {
        let mut client = server.client()?;
        client.ask(&[b"BGREWRITEAOF"])?;
        while client.info("aof_rewrite_in_progress")? != "0"
            || client.info("aof_rewrite_scheduled")? != "0"
        {
            thread::sleep(POLL);
        }
        match client.info("aof_last_bgrewrite_status")?.as_str() {
            "ok" => Ok(()),
            _ => Err(server.server.blamed("could not rewrite its append-only file")),
        }
    }

    fn end(&self, server: Redis) -> Result<(), String> {
        server.server.end(Signal::TERM)
    }

    fn facts(&self, server: &mut Redis) -> Result<Vec<(&'static str, String)>, String> {
        let mut client = server.client()?;
        let mut facts = vec![("server_version", client.info("redis_version")?)];
        for name in ["appendfsync"].into_iter().chain(SETTINGS) {
            let answer = client.ask(&[b"CONFIG", b"GET", name.as_bytes()])?;
            facts.push((name, answer.into_iter().nth(1).unwrap_or_default()));
        }
        Ok(facts)
    }

    fn counters(&self, server: &mut Redis) -> Result<Vec<(&'static str, u64)>, String> {
        let mut client = server.client()?;
        let counters = [REWRITES, "aof_delayed_fsync"];
        let values = counters.map(|name| Ok((name, client.info(name)?.parse().unwrap_or(0))));
        values.into_iter().collect()
    }

    fn findings(&self, grown: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
        let words = "the append-only file was not rewritten within the run, so that cost is not in the figures; take a longer --time";
        (grown(REWRITES) == Some(0)).then(|| words.into()).into_iter().collect()
    }

    fn measure(
        &self,
        _task: &WorkloadTask,
        server: &mut Redis,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        let (count, seconds) = (self.clients, self.seconds);
        let clients = Clients { count, each: u64::MAX, seconds, acknowledger: None, stop };
        let begun = AtomicU64::new(0);
        clients.run(
            || {
                let client = begun.fetch_add(1, Ordering::Relaxed);
                let random = ChaCha8Rng::seed_from_u64(SEED ^ (client << 40));
                Ok((server.client()?, random, self.value(client)))
            },
            |(client, random, value), _, number| {
                let key = RedisWorkload::key(random.random_range(0..u64::from(self.keys)));
                // No two values are alike.
                let stamp = number.to_le_bytes();
                let length = value.len().min(stamp.len());
                value[..length].copy_from_slice(&stamp[..length]);
                client.ask(&[b"SET", key.as_bytes(), value]).map(drop)
            },
        )
    }

    fn bytes_of_commit(&self) -> Option<u64> {
        Some(KEY_BYTES + u64::from(self.value_bytes))
    }

    fn acknowledge(
        &self,
        server: &mut Redis,
        acknowledger: &Arc<Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        Clients::acknowledged(self.clients, self.seconds, acknowledger, stop).run(
            || server.client(),
            |client, number, commit| {
                let value = self.value(commit);
                client.ask(&[b"SET", committed(number, commit).as_bytes(), &value]).map(drop)
            },
        )
    }

    fn loss_in(&self, server: &mut Redis, last: &[(u32, u64)]) -> Result<Option<Loss>, Loss> {
        let mut client = server.client().map_err(Loss::Unusable)?;
        let mut found = Vec::new();
        for (number, last) in last {
            for commit in 1..=*last {
                let key = committed(*number, commit);
                let value = client.ask_bytes(&[b"GET", key.as_bytes()]).map_err(Loss::Unusable)?;
                match value {
                    Some(value) if value == self.value(commit) => found.push((*number, commit)),
                    Some(_) => return Err(Loss::Corrupt(format!("{key} has another value"))),
                    None => {}
                }
            }
        }
        Ok(missing_commit(&found, last))
    }
}

/// The key that a client sets with its commit of this number.
fn committed(client: u32, number: u64) -> String {
    format!("kurabe:{client}:{number}")
}

/// A server that takes connections.
#[derive(Debug)]
struct Redis {
    server: DatabaseServer,
    place: PathBuf,
}

impl Redis {
    fn client(&self) -> Result<RedisConnection, String> {
        RedisConnection::connect(&self.place)
    }
}

/// A connection, and what is to be sent.
#[derive(Debug)]
struct RedisConnection(BufReader<UnixStream>, Vec<u8>);

impl RedisConnection {
    fn connect(place: &Path) -> Result<RedisConnection, String> {
        let stream = UnixStream::connect(place.join(SOCKET)).map_err(said)?;
        Ok(RedisConnection(BufReader::new(stream), Vec::new()))
    }

    /// Has a command sent before the next answer is read.
    fn send(&mut self, words: &[&[u8]]) {
        self.1.extend(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.1.extend(format!("${}\r\n", word.len()).as_bytes());
            self.1.extend(*word);
            self.1.extend(b"\r\n");
        }
    }

    /// The texts of the next answer; an absent value has none.
    fn answer(&mut self) -> Result<Vec<Vec<u8>>, String> {
        self.0.get_mut().write_all(&self.1).map_err(said)?;
        self.1.clear();
        let mut found = Vec::new();
        read_answer(&mut self.0, &mut found, 0).map_err(said)??;
        Ok(found)
    }

    fn ask_bytes(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>, String> {
        self.send(words);
        Ok(self.answer()?.into_iter().next())
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<String>, String> {
        self.send(words);
        let texts = self.answer()?;
        Ok(texts.into_iter().map(|text| String::from_utf8_lossy(&text).into_owned()).collect())
    }

    /// A value of `INFO`.
    fn info(&mut self, name: &str) -> Result<String, String> {
        let text = self.ask(&[b"INFO"])?.concat();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        // Older versions do not have all of them.
        Ok(found.unwrap_or_default().trim().to_string())
    }
}

fn said(error: io::Error) -> String {
    format!("the connection to Redis: {error}")
}

/// Reads one answer; the inner result is the server's.
fn read_answer(
    reader: &mut impl BufRead,
    found: &mut Vec<Vec<u8>>,
    depth: u32,
) -> io::Result<Result<(), String>> {
    let invalid = |words: &str| io::Error::new(io::ErrorKind::InvalidData, words.to_string());
    let mut line = Vec::new();
    reader.by_ref().take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    let Some((kind, text)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
        return Err(invalid("an answer is cut off"));
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let count = || text.parse::<i64>().map_err(|_| invalid("an answer has no size"));
    match kind {
        b'-' => return Ok(Err(format!("Redis: {text}"))),
        b'+' | b':' => found.push(text.into_bytes()),
        b'$' => {
            // A negative size is an absent value.
            let Ok(size_bytes) = usize::try_from(count()?) else { return Ok(Ok(())) };
            if size_bytes > ANSWER_BYTES_MAX {
                return Err(invalid("an answer of an impossible size"));
            }
            let mut value = vec![0; size_bytes + 2];
            reader.read_exact(&mut value)?;
            value.truncate(size_bytes);
            found.push(value);
        }
        b'*' if depth < ANSWER_DEPTH_MAX => {
            for _ in 0..count()? {
                if let Err(words) = read_answer(reader, found, depth + 1)? {
                    return Ok(Err(words));
                }
            }
        }
        _ => return Err(invalid("an answer of an unknown kind")),
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let load = |text| RedisWorkload::of_text(text, 60);
        let plain = load("8").unwrap();
        let defaults = "8 appendfsync=always keys=100000 value-size=200";
        assert_eq!(load(defaults).unwrap(), plain);
        let with = load("1 auto-aof-rewrite-min-size=1mb value-size=1K").unwrap();
        assert_eq!((with.settings.len(), with.value_bytes), (1, 1024));
        assert!(plain.needed_bytes() > 64 << 20);
        for (text, word) in [
            ("", "'' is no number of clients"),
            ("8 fast", "'fast' has no value"),
            ("8 appendfsync=allways", "did you mean 'always'?"),
            ("8 keys=0", "from 1 to 100000000"),
            ("8 value-size=17M", "is not from 1 to 16M"),
            ("8 apendfsync=no", "did you mean 'appendfsync'?"),
            ("8 loadmodule=/x.so", "no setting of Redis is called 'loadmodule'"),
        ] {
            let problem = load(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
    }

    #[test]
    fn answers_are_read_and_what_is_cut_off_is_an_error() {
        let read = |mut bytes: &[u8]| {
            let mut found = Vec::new();
            let said = read_answer(&mut bytes, &mut found, 0)?;
            Ok::<_, io::Error>(said.map(|()| found))
        };
        let whole = b"*4\r\n$3\r\na\r\n\r\n:7\r\n$-1\r\n+OK\r\n";
        assert_eq!(read(whole).unwrap().unwrap(), [&b"a\r\n"[..], b"7", b"OK"]);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert_eq!(read(b"-ERR no\r\n").unwrap().unwrap_err(), "Redis: ERR no");
        assert!(read(b"$99999999999\r\n").is_err());
        assert!(read(&b"*1\r\n".repeat(10)).is_err());
        assert!(read(b"!x\r\n").is_err());
    }
}
