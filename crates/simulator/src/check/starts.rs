//! No accepted start is lost, and none makes two instances.

use std::collections::{HashMap, HashSet};

use everstep_engine::start::NameKey;
use everstep_protocol::InstanceUid;

use super::{Checker, Rest, Seen};

#[derive(Debug, Default)]
pub(super) struct Starts {
    accepted: HashSet<NameKey>,
    created: HashMap<NameKey, InstanceUid>,
}

impl Checker for Starts {
    fn name(&self) -> &'static str {
        "starts"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Accepted(name) => {
                self.accepted.insert((*name).clone());
            }
            Seen::Committed(commit) => {
                for row in &commit.writes.names {
                    if self.created.insert(row.key.clone(), row.uid).is_some() {
                        return Err(format!("{}/{} was created twice", row.key.workflow, row.key.id));
                    }
                }
                for row in &commit.writes.deleted {
                    self.created.remove(&row.name);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        let there: HashSet<_> = rest.instances.iter().map(|view| (&view.workflow, &view.id)).collect();
        let lost = self.accepted.iter().filter(|name| !there.contains(&(&name.workflow, &name.id)));
        match lost.min() {
            Some(name) => Err(format!("the accepted start of {}/{} is lost", name.workflow, name.id)),
            None => Ok(()),
        }
    }
}
