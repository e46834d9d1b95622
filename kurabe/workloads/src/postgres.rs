//! PostgreSQL: where it is installed, a server on a directory, and a client that asks it.
//!
//! Knows no workload. The client speaks version 3 of the protocol over the server's socket, one statement after the
//! other, as PostgreSQL's manual describes it ("Frontend/Backend Protocol"); the server is the workload's own, so no
//! password is asked for.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;
use vocabulary::workload::WorkloadTask;

use crate::enclosure::Enclosure;
use crate::server::{AskError, DatabaseServer, socket_place};
use crate::tool::{WorkloadTool, run_kept_in};

/// Where packages put the programs of each version.
const PLACES: [(&str, &str); 2] = [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")];
/// The number in the socket's name.
const PORT: u16 = 5432;
/// The only user and the database.
const NAME: &str = "postgres";
/// Bytes of one message of the server's.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// What is to be started when a program of PostgreSQL is: that of the newest version which is there as a whole, or
/// else whatever the search path has.
pub(crate) fn path_of(program: &str) -> String {
    let mut found: Vec<(Vec<u32>, PathBuf)> = Vec::new();
    for (place, prefix) in PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(version) = name.strip_prefix(prefix) else { continue };
            let numbers: Option<Vec<u32>> =
                version.split('.').map(|part| part.parse().ok()).collect();
            let directory = entry.path().join("bin");
            let is_whole = ["postgres", "initdb", "pgbench"]
                .iter()
                .all(|name| trust::program::is_executable(&directory.join(name)));
            if let (Some(numbers), true) = (numbers, is_whole) {
                found.push((numbers, directory));
            }
        }
    }
    let newest = found.into_iter().max();
    newest.map_or(program.into(), |(_, place)| place.join(program).display().to_string())
}

/// Makes an empty database there, with checksums of its pages.
pub(crate) fn create(data: &Path, stop: &AtomicBool) -> Result<(), String> {
    run_kept_in(
        WorkloadTool::Initdb,
        &Enclosure::default(),
        |command| {
            command
                .args(["--username", NAME, "--auth", "trust", "--encoding", "UTF8"])
                .args(["--no-locale", "--data-checksums", "--no-instructions", "--pgdata"])
                .arg(data);
        },
        stop,
    )?;
    Ok(())
}

/// A server that takes connections.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: DatabaseServer,
    place: PathBuf,
}

impl Postgres {
    /// Starts a server on a directory, and waits until it answers: what is there has been recovered then.
    pub(crate) fn start(
        task: &WorkloadTask,
        data: &Path,
        settings: &[(String, String)],
        stop: &AtomicBool,
    ) -> Result<Postgres, String> {
        let place = socket_place(task);
        let mut server = DatabaseServer::start(WorkloadTool::Postgres, |command| {
            let socket = place.display().to_string();
            let own = [
                ("listen_addresses", ""),
                ("unix_socket_directories", &socket),
                ("log_checkpoints", "on"),
            ];
            command.arg("-D").arg(data).args(["-p", &PORT.to_string()]);
            let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in own.into_iter().chain(given) {
                command.arg("-c").arg(format!("{name}={value}"));
            }
        })?;
        server.wait_until(stop, || PostgresConnection::connect(&place).ok())?;
        Ok(Postgres { server, place })
    }

    pub(crate) fn client(&self) -> Result<PostgresConnection, String> {
        PostgresConnection::connect(&self.place).map_err(|error| error.to_string())
    }

    /// Where its socket is, and the arguments by which PostgreSQL's programs find it.
    pub(crate) fn arguments(&self) -> [String; 6] {
        let place = self.place.display().to_string();
        ["-h".into(), place, "-p".into(), PORT.to_string(), "-U".into(), NAME.into()]
    }

    pub(crate) fn database(&self) -> &'static str {
        NAME
    }

    /// How many checkpoints its log tells of.
    pub(crate) fn checkpoints(&self) -> usize {
        self.server.log().iter().filter(|line| line.contains("checkpoint starting")).count()
    }

    /// What went wrong while it ran, with the end of its log.
    pub(crate) fn blamed(&mut self, what: &str) -> String {
        format!("{what}\n{}", self.server.blamed("said last:"))
    }

    /// Ends it in good order: with a checkpoint, and without waiting for clients.
    pub(crate) fn end(self) -> Result<(), String> {
        self.server.end(Signal::INT)
    }
}

#[derive(Debug)]
pub(crate) struct PostgresConnection(UnixStream);

impl PostgresConnection {
    fn connect(place: &Path) -> Result<PostgresConnection, AskError> {
        let mut client =
            PostgresConnection(UnixStream::connect(place.join(format!(".s.PGSQL.{PORT}")))?);
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for text in ["user", NAME, "database", NAME, ""] {
            body.extend(text.as_bytes());
            body.push(0);
        }
        client.0.write_all(&[&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat())?;
        client.answer()?;
        Ok(client)
    }

    /// Carries statements out and gives the rows of all of them; an absent value is empty.
    pub(crate) fn ask(&mut self, statements: &str) -> Result<Vec<Vec<String>>, AskError> {
        let size_bytes = (statements.len() as u32 + 5).to_be_bytes();
        let message = [b"Q", &size_bytes[..], statements.as_bytes(), b"\0"].concat();
        self.0.write_all(&message)?;
        self.answer()
    }

    /// The only value of a statement.
    pub(crate) fn value(&mut self, statement: &str) -> Result<String, AskError> {
        let first = self.ask(statement)?.into_iter().flatten().next();
        first.ok_or_else(|| invalid("an answer has no value").into())
    }

    /// Reads until the server is ready for more.
    fn answer(&mut self) -> Result<Vec<Vec<String>>, AskError> {
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            if let Err(error) = self.0.read_exact(&mut head) {
                // What it said before it hung up is the better reason.
                return Err(refused.unwrap_or(error.into()));
            }
            let [kind, size_bytes @ ..] = head;
            let size_bytes = u32::from_be_bytes(size_bytes);
            if !(4..=MESSAGE_BYTES_MAX).contains(&size_bytes) {
                return Err(invalid("a message of an impossible size").into());
            }
            let mut body = vec![0; size_bytes as usize - 4];
            self.0.read_exact(&mut body)?;
            match kind {
                b'R' if body != [0; 4] => return Err(invalid("it asks for a password").into()),
                b'D' => rows.push(row_of(&body).ok_or_else(|| invalid("a row is cut off"))?),
                b'E' => refused = Some(refusal_of(&body)),
                b'Z' => return refused.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

fn invalid(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

fn row_of(body: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (size_bytes, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // A negative size is an absent value.
        let size_bytes = usize::try_from(i32::from_be_bytes(*size_bytes)).unwrap_or(0);
        let (value, after) = rest.split_at_checked(size_bytes)?;
        rest = after;
        row.push(String::from_utf8_lossy(value).into_owned());
    }
    Some(row)
}

fn refusal_of(body: &[u8]) -> AskError {
    let field = |code: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    let code = field(b'C');
    // Class XX of the errors says that what is stored is damaged.
    let is_corruption = code.starts_with("XX");
    AskError::Refused { code, words: field(b'M'), is_corruption }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read_and_what_is_cut_off_is_none() {
        let body = [&[0, 3][..], &[0, 0, 0, 2], b"ab", &[255; 4], &[0, 0, 0, 1], b"c"].concat();
        assert_eq!(row_of(&body).unwrap(), ["ab", "", "c"]);
        for length in 0..body.len() {
            assert_eq!(row_of(&body[..length]), None, "{length}");
        }
        let refused = refusal_of(b"SERROR\0CXX001\0Minvalid page\0\0");
        assert!(refused.is_corruption());
        assert_eq!(refused.to_string(), "the server: invalid page (XX001)");
        assert!(!refusal_of(b"C42P01\0Mno table\0\0").is_corruption());
    }
}
