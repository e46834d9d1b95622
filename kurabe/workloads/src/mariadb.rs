//! MariaDB: an empty database, a server on a directory, and a client that asks it.
//!
//! Knows no workload. The client speaks the text protocol over the server's socket, one statement after the other,
//! as MariaDB's documentation describes it ("Client/Server Protocol"); the server is the workload's own, so no password
//! is asked for.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;
use vocabulary::workload::WorkloadTask;

use crate::enclosure::Enclosure;
use crate::server::{AskError, DatabaseServer, socket_place};
use crate::tool::{WorkloadTool, run_kept_in};

/// The only user.
pub(crate) const USER: &str = "root";
/// The database that is always there; that of the workload is made by it.
const SYSTEM: &str = "mysql";
const SOCKET: &str = "mariadb.sock";
/// Bytes of one packet of the server's; larger ones come in several.
const PACKET_BYTES_MAX: usize = 0xff_ffff;
/// What the client can do: it gives the name of a database, speaks version 4.1, and names its way of authentication.
const CAPABILITIES: u32 = 0x8 | 0x200 | 0x8000 | 0x8_0000;
/// utf8mb4.
const CHARACTERS: u8 = 45;
/// The way of authentication, of which an empty password is an empty answer.
const AUTHENTICATION: &str = "mysql_native_password";
/// Errors that say that what is stored is damaged: a wrong key file, a crashed table, a corrupt index or table.
const DAMAGE: [u16; 5] = [1034, 1194, 1195, 1712, 1877];

/// Settings that hold from the making of a database on.
const MADE_WITH: [&str; 4] = [
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_undo_tablespaces",
    "lower_case_table_names",
];

/// Makes an empty database, with those of a server's settings that hold from then on.
pub(crate) fn create(
    data: &Path,
    settings: &[(String, String)],
    stop: &AtomicBool,
) -> Result<(), String> {
    let fill = |command: &mut std::process::Command| {
        command
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg("--skip-name-resolve")
            .arg(format!("--datadir={}", data.display()));
        for (name, value) in settings.iter().filter(|(name, _)| MADE_WITH.contains(&name.as_str()))
        {
            command.arg(format!("--{name}={value}"));
        }
    };
    run_kept_in(WorkloadTool::MariadbInstall, &Enclosure::default(), fill, stop)?;
    Ok(())
}

/// A server that takes connections.
#[derive(Debug)]
pub(crate) struct Mariadb {
    server: DatabaseServer,
    place: PathBuf,
}

impl Mariadb {
    /// Starts a server on a directory, and waits until it answers: what is there has been recovered then.
    pub(crate) fn start(
        task: &WorkloadTask,
        data: &Path,
        settings: &[(String, String)],
        stop: &AtomicBool,
    ) -> Result<Mariadb, String> {
        let place = socket_place(task);
        let mut server = DatabaseServer::start(WorkloadTool::Mariadb, |command| {
            command
                .args(["--no-defaults", "--skip-networking", "--skip-name-resolve"])
                .arg(format!("--datadir={}", data.display()))
                .arg(format!("--socket={}", place.join(SOCKET).display()))
                .arg(format!("--pid-file={}", place.join("mariadb.pid").display()));
            for (name, value) in settings {
                command.arg(format!("--{name}={value}"));
            }
        })?;
        server.wait_until(stop, || MariadbConnection::connect(&place, SYSTEM).ok())?;
        Ok(Mariadb { server, place })
    }

    pub(crate) fn client(&self, database: &str) -> Result<MariadbConnection, String> {
        MariadbConnection::connect(&self.place, database).map_err(|error| error.to_string())
    }

    /// A connection to the database that is always there.
    pub(crate) fn system_client(&self) -> Result<MariadbConnection, String> {
        self.client(SYSTEM)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.join(SOCKET)
    }

    /// What went wrong while it ran, with the end of its log.
    pub(crate) fn blamed(&mut self, what: &str) -> String {
        format!("{what}\n{}", self.server.blamed("said last:"))
    }

    /// Ends it in good order, with everything written to its place.
    pub(crate) fn end(self) -> Result<(), String> {
        self.server.end(Signal::TERM)
    }
}

#[derive(Debug)]
pub(crate) struct MariadbConnection(UnixStream);

impl MariadbConnection {
    fn connect(place: &Path, database: &str) -> Result<MariadbConnection, AskError> {
        let mut client = MariadbConnection(UnixStream::connect(place.join(SOCKET))?);
        // What the server can do does not matter: all versions can do what is asked for.
        let (number, greeting) = client.packet()?;
        if let Some(refused) = refusal_of(&greeting) {
            return Err(refused);
        }
        let mut body = CAPABILITIES.to_le_bytes().to_vec();
        body.extend((PACKET_BYTES_MAX as u32).to_le_bytes());
        body.push(CHARACTERS);
        body.extend([0; 23]);
        // The password between them is empty.
        for text in [USER, "", database, AUTHENTICATION] {
            body.extend(text.as_bytes());
            body.push(0);
        }
        client.send(number + 1, &body)?;
        loop {
            let (number, answer) = client.packet()?;
            match (answer.first(), refusal_of(&answer)) {
                (_, Some(refused)) => return Err(refused),
                (Some(0), None) => return Ok(client),
                // Another way of authentication, of which no password is an empty answer too.
                (Some(0xfe), None) => client.send(number.wrapping_add(1), &[])?,
                _ => return Err(invalid("it asks for a password").into()),
            }
        }
    }

    /// Carries one statement out and gives its rows; an absent value is empty.
    pub(crate) fn ask(&mut self, statement: &str) -> Result<Vec<Vec<String>>, AskError> {
        const QUERY: u8 = 3;
        self.send(0, &[&[QUERY], statement.as_bytes()].concat())?;
        let (_, first) = self.packet()?;
        if let Some(refused) = refusal_of(&first) {
            return Err(refused);
        }
        let columns = match first.first() {
            Some(0) => return Ok(Vec::new()),
            _ => number_of(&first).ok_or_else(|| invalid("an answer has no size"))?.0,
        };
        let mut rows = Vec::new();
        // The columns are told first, with an end of their own.
        let (mut left, mut is_rows) = (columns, false);
        loop {
            let (_, body) = self.packet()?;
            if let Some(refused) = refusal_of(&body) {
                return Err(refused);
            }
            match (body.first() == Some(&0xfe) && body.len() < 9, is_rows) {
                (true, true) => return Ok(rows),
                (true, false) if left == 0 => is_rows = true,
                (false, true) => {
                    rows.push(row_of(&body).ok_or_else(|| invalid("a row is cut off"))?);
                }
                (false, false) if left > 0 => left -= 1,
                _ => return Err(invalid("an answer out of order").into()),
            }
        }
    }

    /// The only value of a statement.
    pub(crate) fn value(&mut self, statement: &str) -> Result<String, AskError> {
        let first = self.ask(statement)?.into_iter().flatten().next();
        first.ok_or_else(|| invalid("an answer has no value").into())
    }

    fn send(&mut self, number: u8, body: &[u8]) -> io::Result<()> {
        assert!(body.len() < PACKET_BYTES_MAX, "a statement is short");
        let size_bytes = (body.len() as u32).to_le_bytes();
        self.0.write_all(&[&size_bytes[..3], &[number], body].concat())
    }

    /// The number and the contents of the next packet.
    fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head)?;
        let [low, middle, high, number] = head;
        let size_bytes = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if size_bytes == PACKET_BYTES_MAX {
            return Err(invalid("a row of an impossible size"));
        }
        let mut body = vec![0; size_bytes];
        self.0.read_exact(&mut body)?;
        Ok((number, body))
    }
}

impl Drop for MariadbConnection {
    /// Says that it leaves, or else the server's log has a warning.
    fn drop(&mut self) {
        const QUIT: u8 = 1;
        let _ = self.send(0, &[QUIT]);
    }
}

fn invalid(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// A number of one to nine bytes, and what follows it.
fn number_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let length = match first {
        0..=0xfa => return Some((u64::from(*first), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(length)?;
    let mut all = [0; 8];
    all[..length].copy_from_slice(number);
    Some((u64::from_le_bytes(all), rest))
}

fn row_of(body: &[u8]) -> Option<Vec<String>> {
    const ABSENT: u8 = 0xfb;
    let (mut row, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        if rest[0] == ABSENT {
            (row, rest) = ([row, vec![String::new()]].concat(), &rest[1..]);
            continue;
        }
        let (size_bytes, after) = number_of(rest)?;
        let (value, after) = after.split_at_checked(usize::try_from(size_bytes).ok()?)?;
        row.push(String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    Some(row)
}

fn refusal_of(body: &[u8]) -> Option<AskError> {
    let (code, words) = body.strip_prefix(&[0xff])?.split_first_chunk::<2>()?;
    // The state of SQL's standard stands before the words.
    let words = words.strip_prefix(b"#").and_then(|rest| rest.get(5..)).unwrap_or(words);
    let words = String::from_utf8_lossy(words).into_owned();
    let code = u16::from_le_bytes(*code);
    Some(AskError::Refused { code: code.to_string(), words, is_corruption: DAMAGE.contains(&code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read_and_what_is_cut_off_is_none() {
        let long = [&[0xfc, 0, 1][..], &[b'x'; 256]].concat();
        let body = [b"\x02ab\xfb\0", &long[..], b"\x01c"].concat();
        let row = row_of(&body).unwrap();
        assert_eq!(
            (&row[..3], row[3].len(), &row[4][..]),
            (&["ab", "", ""].map(String::from)[..], 256, "c")
        );
        let whole = [0, 3, 4, 5, 264];
        for length in 0..body.len() {
            assert_eq!(row_of(&body[..length]).is_some(), whole.contains(&length), "{length}");
        }
        let refused = refusal_of(b"\xff\xb0\x06#HY000Index for table is corrupt").unwrap();
        assert!(refused.is_corruption());
        assert_eq!(refused.to_string(), "the server: Index for table is corrupt (1712)");
        assert!(!refusal_of(b"\xff\x7a\x04no table").unwrap().is_corruption());
        assert!(refusal_of(b"\0").is_none());
    }
}
