//! The code of every instance: it does what its program says, and tells in its output what came of each part.

use std::sync::Arc;

use everstep_sdk::{Either, Error, Hook, Next, Registry, Retry, Step, Undo, WebhookResponse, Workflow};
use futures::{FutureExt, future::BoxFuture};

use super::{
    POOL, WORKFLOW,
    effects::{Class, Services},
    program::{Op, Program},
};

type Told = Result<Vec<String>, Error>;

/// The code as one process has it.
pub(crate) fn registry(services: &Services) -> Registry {
    let services = services.clone();
    Registry::new().workflow_fn(WORKFLOW, move |cx: Workflow, program: Program| {
        let services = services.clone();
        async move { whole(cx, services, program).await }
    })
}

/// The functions of the pool, beside whatever else a process has.
pub(crate) fn pooled(registry: Registry, services: &Services) -> Registry {
    let mut registry = registry;
    for class in Class::ALL {
        let services = services.clone();
        registry = registry.function(class.word(), move |step: Step, what: String| {
            let services = services.clone();
            async move { services.act(class, &step, what).await }
        });
    }
    let services = services.clone();
    registry.function("find", move |step: Step, what: String| {
        let found = services.look(&step, what);
        async move { Ok::<_, Error>(found) }
    })
}

async fn whole(
    cx: Workflow,
    services: Services,
    program: Program,
) -> Result<Next<Program, Vec<String>>, Error> {
    let run = Run { cx: cx.clone(), services: Arc::new(services) };
    let path = cx.instance_id().to_owned();
    let mut told = Vec::new();
    if let Some(token) = program.token.filter(|_| cx.generation() == 1) {
        told.push(run.started_with(token).await?);
    }
    told.extend(run.list(path, program.ops.clone()).await?);
    if program.again > 0 {
        return Ok(Next::Again(Program { again: program.again - 1, ..program }));
    }
    Ok(Next::Done(told))
}

/// One run of one instance.
#[derive(Clone)]
struct Run {
    cx: Workflow,
    services: Arc<Services>,
}

impl Run {
    fn list(&self, path: String, ops: Vec<Op>) -> BoxFuture<'static, Told> {
        let run = self.clone();
        async move {
            let mut told = Vec::new();
            for (number, op) in ops.into_iter().enumerate() {
                let path = format!("{path}.{number}");
                match run.op(&path, op).await {
                    Ok(more) => told.extend(more),
                    // Whoever cancels wants an end; everything else is told and lived with.
                    Err(error) if error.is_cancelled() || error.name() == "Failed" => return Err(error),
                    Err(error) => told.push(format!("{path}: {}", error.name())),
                }
            }
            Ok(told)
        }
        .boxed()
    }

    async fn op(&self, path: &str, op: Op) -> Told {
        let cx = &self.cx;
        let said = match op {
            Op::Step { class, undone } => self.step(class, path, undone).await?,
            Op::Remote { class } => self.remote(class, path).await?,
            Op::Sleep { millis } => cx.sleep("sleep", millis).await.map(|()| String::new())?,
            Op::Event { kind, millis } => {
                let event = cx.event::<u64>(format!("e{kind}")).timeout(millis).await?;
                format!("e{kind} {event}")
            }
            Op::Send { kind, to } => {
                let other = cx.instance(WORKFLOW, format!("i{to}"));
                other.send(format!("e{kind}"), 0).await.map(|()| "sent".to_owned())?
            }
            Op::Hook { token, force, millis } => self.hook(token, force, millis).await?,
            Op::Webhook { token, replying, millis } => self.webhook(token, replying, millis).await?,
            Op::Resume { token } => {
                let resumed = cx.resume_hook("resume", format!("t{token}"), 1).await?;
                resumed.map_or("nobody".to_owned(), |owner| owner.id().to_owned())
            }
            Op::Child { ops, detached } => self.child(ops, detached).await?,
            Op::All(lists) => return self.all(path, lists).await,
            Op::Race(lists) => {
                let lists = self.branches(path, lists);
                let (place, told) = cx.race(lists).await;
                format!("{place} of {path}, {}", told?.len())
            }
            Op::Plan { actions } => return self.plan(path, actions).await,
            Op::Fail => return Err(Error::permanent("the program says so").named("Failed")),
        };
        Ok(vec![said])
    }

    async fn step(&self, class: Class, path: &str, undone: bool) -> Result<String, Error> {
        let (services, undoing) = (self.services.clone(), self.services.clone());
        // Generations give their steps the same inputs: only the key tells them apart.
        let generation = self.cx.generation();
        let call = self.cx.step(class.word(), path, move |step: Step, what: String| {
            let (services, what) = (services.clone(), of(generation, &what));
            async move { services.act(class, &step, what).await }
        });
        let call = call.retry(retry());
        let call = match class {
            Class::Keyed => call.timeout("40s"),
            Class::Lookup => {
                let services = self.services.clone();
                let look = move |step: Step, what: String| {
                    let found = services.look(&step, of(generation, &what));
                    async move { Ok::<_, Error>(found) }
                };
                call.look_first(look).visibility_lag("3s")
            }
            Class::Once => call.at_most_once(),
        };
        if !undone {
            return call.await;
        }
        call.compensate(move |step: Step, _: Undo<String, String>| {
            let services = undoing.clone();
            async move {
                let what = format!("undo of {}", step.undoes().unwrap_or_default());
                services.act(Class::Keyed, &step, what).await
            }
        })
        .await
    }

    async fn remote(&self, class: Class, path: &str) -> Result<String, Error> {
        let what = of(self.cx.generation(), path);
        let call = self.cx.remote::<String>(class.word(), what).on(POOL).retry(retry());
        match class {
            Class::Keyed => call.await,
            Class::Lookup => call.look_first("find").visibility_lag("3s").await,
            Class::Once => call.at_most_once().await,
        }
    }

    async fn started_with(&self, token: u64) -> Result<String, Error> {
        let hook: Hook<u64> = self.cx.hook("started").token(format!("t{token}")).create()?;
        self.awaits(hook, 2_000).await
    }

    async fn hook(&self, token: u64, force: bool, millis: u64) -> Result<String, Error> {
        let call = self.cx.hook::<u64>("hook").token(format!("t{token}"));
        let hook = if force { call.force() } else { call }.create()?;
        if let Some(conflict) = hook.conflict().await? {
            return Ok(format!("t{token} is {}'s", conflict.id()));
        }
        self.awaits(hook, millis).await
    }

    async fn webhook(&self, token: u64, replying: bool, millis: u64) -> Result<String, Error> {
        let call = self.cx.webhook("webhook").token(format!("t{token}"));
        let webhook = if replying { call.replying() } else { call }.create()?;
        if let Some(conflict) = webhook.conflict().await? {
            return Ok(format!("t{token} is {}'s", conflict.id()));
        }
        let request = match self.cx.either(webhook.next(), self.cx.sleep("patience", millis)).await {
            Either::First(request) => request?,
            Either::Second(slept) => return slept.map(|()| format!("t{token} was not called")),
        };
        let number: u64 = request.json()?;
        if replying {
            request.respond(WebhookResponse::new(201).json(&number)).await?;
        }
        Ok(format!("t{token} was called with {number}"))
    }

    async fn awaits(&self, hook: Hook<u64>, millis: u64) -> Result<String, Error> {
        match self.cx.either(hook.next(), self.cx.sleep("patience", millis)).await {
            Either::First(payload) => Ok(format!("{} got {}", hook.token(), payload?)),
            Either::Second(slept) => slept.map(|()| format!("{} got nothing", hook.token())),
        }
    }

    async fn child(&self, ops: Vec<Op>, detached: bool) -> Result<String, Error> {
        let program = Program { ops, again: 0, token: None };
        let call = self.cx.child::<Vec<String>>("child", WORKFLOW, program);
        if detached {
            return call.detached().start().await.map(|child| child.id().to_owned());
        }
        call.await.map(|told| format!("child, {}", told.len()))
    }

    fn branches(&self, path: &str, lists: Vec<Vec<Op>>) -> Vec<BoxFuture<'static, Told>> {
        let branch = |(number, ops)| self.list(format!("{path}:{number}"), ops);
        lists.into_iter().enumerate().map(branch).collect()
    }

    async fn all(&self, path: &str, lists: Vec<Vec<Op>>) -> Told {
        let told = self.cx.join_all(self.branches(path, lists)).await;
        Ok(told.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    async fn plan(&self, path: &str, actions: u64) -> Told {
        let whats: Vec<_> = (0..actions).map(|number| format!("{path}!{number}")).collect();
        let plan = self.cx.plan("plan", whats, async |_: Step, whats: Vec<String>| Ok::<_, Error>(whats));
        let mut told = Vec::new();
        for action in &plan.await? {
            let services = self.services.clone();
            let generation = self.cx.generation();
            let act = move |step: Step, what: String| {
                let (services, what) = (services.clone(), of(generation, &what));
                async move { services.act(Class::Keyed, &step, what).await }
            };
            told.push(action.step(Class::Keyed.word(), &**action, act).retry(retry()).await?);
        }
        Ok(told)
    }
}

/// What a call does, of all generations.
fn of(generation: u32, what: &str) -> String {
    format!("{what} of {generation}")
}

/// Many, and soon: the simulated services fail often.
fn retry() -> Retry {
    Retry::exponential("200ms").max_delay("3s").limit(25)
}
