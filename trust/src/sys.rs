//! The crate's only unsafe code: the list of users, which no safe interface gives.

use nix::errno::Errno;
use nix::libc;

/// A user and its primary group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub user: u32,
    /// The primary group.
    pub group: u32,
}

/// All users that the user database lists (getpwent(3)); absent when it cannot be read.
///
/// To be called once in a process: getpwent(3) keeps its position for the whole process.
pub fn accounts() -> Option<Vec<Account>> {
    let mut accounts = Vec::new();
    // SAFETY: the call takes nothing and gives nothing; nothing else in this process iterates the list.
    unsafe { libc::setpwent() };
    let failed = loop {
        Errno::clear();
        // SAFETY: the call takes nothing. What it returns is valid until the next call, which is after
        // the last use below, since the caller calls this function once.
        let entry = unsafe { libc::getpwent().as_ref() };
        match entry {
            Some(entry) => {
                accounts.push(Account { user: entry.pw_uid, group: entry.pw_gid });
            }
            None => {
                break matches!(
                    Errno::last(),
                    Errno::EINTR
                        | Errno::EIO
                        | Errno::EMFILE
                        | Errno::ENFILE
                        | Errno::ENOMEM
                        | Errno::ERANGE
                );
            }
        }
    };
    // SAFETY: as of `setpwent`.
    unsafe { libc::endpwent() };
    (!failed && !accounts.is_empty()).then_some(accounts)
}
