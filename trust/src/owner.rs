//! Who is believed: root, the user of this process, the user who called it by sudo(8) or
//! pkexec(1), and whoever was named by `--trust`.
//!
//! Root's own files can be anything's, so root is believed everywhere. `SUDO_UID` is read only by
//! a process of root: whoever can set it there is root already.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Gid, Group, Uid, User};

use crate::sys::{self, Account};

static NAMED: OnceLock<Vec<u32>> = OnceLock::new();
static SHARED: AtomicBool = AtomicBool::new(false);

/// Believes directories that other users can write too, for the rest of this process.
pub fn trust_shared() {
    SHARED.store(true, Ordering::Relaxed);
}

/// Whether directories that other users can write are believed.
pub(crate) fn is_shared_believed() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Believes `users` too, by name or number, for the rest of this process. To be called once, with
/// what the command line says.
pub fn trust(users: &[String]) -> Result<(), String> {
    let mut named = Vec::new();
    for user in users {
        let known = match user.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => User::from_name(user).ok().flatten().map(|known| known.uid.as_raw()),
        };
        named.push(known.ok_or_else(|| format!("--trust {user}: there is no such user"))?);
    }
    NAMED.set(named).map_err(|_| "--trust was read twice".into())
}

/// The words that make another kurabe believe the same users as this one. That one may run as
/// another user, and then knows no caller.
pub fn words() -> Vec<String> {
    let named = NAMED.get().into_iter().flatten().copied();
    let believed = named.chain([caller()]).filter(|user| *user != 0);
    let users = believed.flat_map(|user| ["--trust".to_string(), user.to_string()]);
    users.chain(is_shared_believed().then(|| "--trust-shared".to_string())).collect()
}

/// The user who called this process: of root by sudo(8) or pkexec(1) that one, otherwise its own.
fn caller() -> u32 {
    let own = rustix::process::geteuid();
    let of = |name| std::env::var(name).ok()?.parse().ok();
    if own.is_root() {
        of("SUDO_UID").or_else(|| of("PKEXEC_UID")).unwrap_or(0)
    } else {
        own.as_raw()
    }
}

/// Whether what this user owns is believed.
pub(crate) fn is_believed(user: u32) -> bool {
    user == 0
        || user == caller()
        || user == rustix::process::geteuid().as_raw()
        || NAMED.get().is_some_and(|named| named.contains(&user))
}

/// A user's name, or the number of one without a name.
pub(crate) fn name(user: u32) -> String {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| user.to_string(), |known| known.name)
}

/// Whether everybody in a group is believed: those whom the group lists, and those whose primary group
/// it is. A group that nobody knows, or whose members cannot be told, is not.
pub(crate) fn is_believed_group(group: u32) -> bool {
    static ACCOUNTS: OnceLock<Option<Vec<Account>>> = OnceLock::new();
    let Ok(Some(known)) = Group::from_gid(Gid::from_raw(group)) else { return false };
    let Some(accounts) = ACCOUNTS.get_or_init(sys::accounts) else { return false };
    let number = |name: &String| Some(User::from_name(name).ok()??.uid.as_raw());
    let listed: Option<Vec<u32>> = known.mem.iter().map(number).collect();
    listed.is_some_and(|listed| are_believed(group, &listed, accounts, is_believed))
}

fn are_believed(
    group: u32,
    listed: &[u32],
    accounts: &[Account],
    is_believed: impl Fn(u32) -> bool,
) -> bool {
    let primary = accounts.iter().filter(|account| account.group == group);
    listed.iter().copied().chain(primary.map(|account| account.user)).all(is_believed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_believed_when_every_member_is() {
        let accounts = [(0, 0), (1000, 1000), (1001, 1001), (1002, 1000)];
        let accounts = accounts.map(|(user, group)| Account { user, group });
        let is = |group, listed: &[u32], believed: &[u32]| {
            are_believed(group, listed, &accounts, |user| believed.contains(&user))
        };
        assert!(is(0, &[], &[0]));
        assert!(!is(0, &[1001], &[0]), "a member of root's group");
        assert!(is(1001, &[], &[0, 1001]));
        assert!(is(1001, &[1001, 0], &[0, 1001]));
        assert!(!is(1001, &[1000], &[0, 1001]), "a listed member");
        assert!(!is(1000, &[], &[0, 1000]), "a member by primary group");
        assert!(is(1000, &[1001], &[0, 1000, 1001, 1002]));
    }
}
