//! Who is believed: root, the user of this process, the user who called it by sudo(8) or
//! pkexec(1), and whoever was named by `--trust`.
//!
//! Root's own files can be anything's, so root is believed everywhere. `SUDO_UID` is read only by
//! a process of root: whoever can set it there is root already.

use std::sync::OnceLock;

use nix::unistd::{Uid, User};

static NAMED: OnceLock<Vec<u32>> = OnceLock::new();

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
    believed.flat_map(|user| ["--trust".to_string(), user.to_string()]).collect()
}

/// The user who called this process: of root by sudo(8) or pkexec(1) that one, otherwise its own.
fn caller() -> u32 {
    let own = rustix::process::geteuid();
    let of = |name| std::env::var(name).ok()?.parse().ok();
    match own.is_root() {
        true => of("SUDO_UID").or_else(|| of("PKEXEC_UID")).unwrap_or(0),
        false => own.as_raw(),
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

/// Whether a group has nobody in it but one user, as far as convention tells: a group with the
/// number of its user is that user's own, and root's group is root's.
pub(crate) fn is_own_group(group: u32, user: u32) -> bool {
    group == 0 || group == user
}
