//! Purges by the broker's own command. A purge takes only what lies in a queue and is not yet under way to a consumer: whoever
//! wants it to take something stops the consumers first.

use anyhow::{Context as _, Result};

/// Purges all queues of a vhost whose name begins with this pattern, a regular expression, again and again inside the broker, until
/// a message was lost or three seconds are over. `ctl` runs the broker's command. Tells how many messages were lost.
pub fn purge(ctl: impl FnOnce(&[&str]) -> Result<String>, vhost: &str, pattern: &str) -> Result<u64> {
    let program = format!(
        "Match = fun(Q) -> {{resource, _, queue, Name}} = amqqueue:get_name(Q), \
           re:run(Name, <<\"^{pattern}\">>, [{{capture, none}}]) =:= match end, \
         Once = fun() -> lists:sum([case rabbit_amqqueue:purge(Q) of {{ok, N}} -> N; _ -> 0 end \
           || Q <- rabbit_amqqueue:list(<<\"{vhost}\">>), Match(Q)]) end, \
         Until = erlang:monotonic_time(millisecond) + 3000, \
         Loop = fun F() -> case Once() of \
           0 -> case erlang:monotonic_time(millisecond) < Until of true -> timer:sleep(10), F(); false -> 0 end; \
           N -> N end end, \
         Loop()."
    );
    let printed = ctl(&["eval", &program])?;
    printed.trim().parse().with_context(|| format!("the broker answered {printed:?}"))
}
