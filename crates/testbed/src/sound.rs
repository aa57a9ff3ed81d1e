//! What is true of every database in which everything has ended, whatever had happened to it.

/// Questions to the database that count what must not be there. All instances have ended, in their first run and generation.
pub const UNSOUND: [(&str, &str); 5] = [
    (
        "journals whose positions are not dense",
        "SELECT count(*) FROM (SELECT instance FROM journal GROUP BY instance \
         HAVING min(position) <> 1 OR max(position) <> count(*) OR count(DISTINCT position) <> count(*)) AS x",
    ),
    (
        "heads that do not stand at the end of their journal",
        "SELECT count(*) FROM instance i \
         LEFT JOIN (SELECT instance, max(position) AS last FROM journal GROUP BY instance) AS j ON j.instance = i.id \
         WHERE i.position IS DISTINCT FROM j.last",
    ),
    (
        "instances without exactly one end",
        "SELECT count(*) FROM instance i \
         LEFT JOIN (SELECT instance, count(*) AS ends FROM journal WHERE kind = 8 GROUP BY instance) AS j ON j.instance = i.id \
         WHERE j.ends IS DISTINCT FROM 1",
    ),
    (
        "leases, ready rows, waits and remote steps that are left over",
        "SELECT (SELECT count(*) FROM lease) + (SELECT count(*) FROM ready) + (SELECT count(*) FROM wait) \
         + (SELECT count(*) FROM remote_step) + (SELECT count(*) FROM mailbox)",
    ),
    ("questions to people", "SELECT count(*) FROM attention"),
];
