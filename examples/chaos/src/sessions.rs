//! Sessions that ended though nobody said goodbye, and leases lost with them, as the coordinators' metrics tell.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(500);

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Sessions ended for silence or an inbox that was gone.
    pub(crate) sessions: u64,
    /// Leases taken from them.
    pub(crate) leases: u64,
}

/// Adds up the counters of coordinators that come and go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<(Lost, HashMap<SocketAddr, Lost>)>>);

impl Sessions {
    /// Counts from now on, until the handle ends.
    pub(crate) fn watch(addresses: Vec<SocketAddr>) -> (Self, JoinHandle<()>) {
        let sessions = Self::default();
        let watching = sessions.clone();
        let task = tokio::spawn(async move {
            let Ok(client) = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build()
            else {
                return;
            };
            loop {
                for address in &addresses {
                    if let Some(text) = page(&client, *address).await {
                        watching.add(*address, read(&text));
                    }
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        (sessions, task)
    }

    /// All so far.
    pub(crate) fn lost(&self) -> Lost {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn add(&self, address: SocketAddr, now: Lost) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counts.1.insert(address, now).unwrap_or_default();
        // A counter that is lower than before is that of a process that was started again.
        let more = |now: u64, before: u64| if now < before { now } else { now - before };
        counts.0.sessions += more(now.sessions, before.sessions);
        counts.0.leases += more(now.leases, before.leases);
    }
}

async fn page(client: &reqwest::Client, address: SocketAddr) -> Option<String> {
    client.get(format!("http://{address}/metrics")).send().await.ok()?.text().await.ok()
}

fn read(text: &str) -> Lost {
    let sum = |is_it: &dyn Fn(&str) -> bool| {
        let lines = text.lines().filter(|line| is_it(line));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    };
    Lost {
        sessions: sum(&|line| {
            line.starts_with("everstep_sessions_ended_total{") && !line.contains("cause=\"goodbye\"")
        }),
        leases: sum(&|line| line.starts_with("everstep_leases_lost_total{")),
    }
}

#[cfg(test)]
mod tests {
    //! Pure: what is read from a page, and what is added up.
    use super::*;

    #[test]
    fn goodbyes_do_not_count_and_counters_that_begin_again_do() {
        let page = "# HELP everstep_sessions_ended_total x\neverstep_sessions_ended_total{cause=\"goodbye\"} 7\n\
            everstep_sessions_ended_total{cause=\"silent\"} 1\neverstep_sessions_ended_total{cause=\"unroutable\"} 2\n\
            everstep_leases_lost_total{of=\"instance\"} 9\n";
        assert_eq!(read(page), Lost { sessions: 3, leases: 9 });
        let (sessions, address) = (Sessions::default(), SocketAddr::from(([127, 0, 0, 1], 1)));
        for (ended, leases) in [(3, 9), (4, 9), (1, 2)] {
            sessions.add(address, Lost { sessions: ended, leases });
        }
        assert_eq!(sessions.lost(), Lost { sessions: 5, leases: 11 });
    }
}
