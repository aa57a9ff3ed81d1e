//! Tokens: one owner at any commit, and whoever is told that it owns one does.

use std::collections::HashMap;

use everstep_engine::hook::{HookEnd, TokenKey};
use everstep_protocol::{
    HookId, InstanceUid,
    journal::{Fact, HookOutcome},
};

use super::{Checker, Commit, Seen};

#[derive(Debug, Default)]
pub(super) struct Hooks {
    owners: HashMap<TokenKey, Owner>,
}

#[derive(Debug)]
struct Owner {
    uid: InstanceUid,
    id: HookId,
    retained: bool,
    /// It is the one that the instance was started with.
    started: bool,
}

impl Hooks {
    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        let writes = &commit.writes;
        // In the order in which a store writes them.
        for uid in &writes.hooks_ended {
            self.owners.retain(|_, owner| owner.uid != *uid || owner.retained);
        }
        for uid in &writes.hooks_dropped {
            self.owners.retain(|_, owner| owner.uid != *uid || owner.started);
        }
        for (token, uid, end) in &writes.hook_deletes {
            let owner = self.owners.remove(token);
            let is_own = owner.as_ref().is_none_or(|owner| owner.uid == *uid);
            let decides = |owner: InstanceUid| commit.heads.contains_key(&owner);
            if *end == HookEnd::Own && owner.is_some() && !decides(*uid) {
                return Err(format!("token {} was taken from {uid} without its own decision", token.1));
            }
            if *end == HookEnd::Own && !is_own {
                return Err(format!("{uid} gave up token {}, which another one owns", token.1));
            }
        }
        for (token, row) in &writes.hooks {
            let owner = Owner {
                uid: row.owner,
                id: row.id,
                retained: row.retain_until.is_some(),
                started: row.id.position.0 <= 1,
            };
            if let Some(before) = self.owners.insert(token.clone(), owner) {
                let (token, uid) = (&token.1, row.owner);
                return Err(format!("{uid} got token {token} while {} owned it", before.uid));
            }
        }
        for row in &writes.deleted {
            self.owners.retain(|_, owner| owner.uid != row.uid);
        }
        self.told(commit)
    }

    /// Whoever is told in its journal that it owns a hook must have a row for it.
    fn told(&self, commit: &Commit) -> Result<(), String> {
        for row in &commit.writes.journal {
            let Fact::Registered(registered) = &row.entry.fact else { continue };
            let HookOutcome::Owned { hook, .. } = registered.outcome else { continue };
            let has = |owner: &Owner| owner.uid == row.uid && owner.id == hook;
            let given_up = writes_off(commit, row.uid);
            if !self.owners.values().any(has) && !given_up {
                return Err(format!("{} was told that it owns {}, and does not", row.uid, registered.call));
            }
        }
        Ok(())
    }
}

/// In the same transaction the instance let hooks go.
fn writes_off(commit: &Commit, uid: InstanceUid) -> bool {
    let writes = &commit.writes;
    writes.hooks_ended.contains(&uid)
        || writes.hooks_dropped.contains(&uid)
        || writes.hook_deletes.iter().any(|(_, owner, _)| *owner == uid)
        || writes
            .heads
            .iter()
            .any(|head| head.uid == uid && commit.heads.get(&uid).is_some_and(|before| before.run < head.run))
        || writes.journal.iter().any(|row| row.uid == uid && matches!(row.entry.fact, Fact::Closed(_)))
}

impl Checker for Hooks {
    fn name(&self) -> &'static str {
        "hooks"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => self.committed(commit),
            _ => Ok(()),
        }
    }
}
