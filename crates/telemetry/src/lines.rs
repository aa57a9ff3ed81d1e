//! How lines are written: for people, or as JSON. Both say whose code logged them ([`label`]) and in which trace.
//!
//! ```
//! use everstep_telemetry::lines::Lines;
//! use tracing_subscriber::prelude::*;
//!
//! let lines = tracing_subscriber::fmt::layer().event_format(Lines::json());
//! let subscriber = tracing_subscriber::registry().with(lines);
//! # drop(subscriber);
//! ```

use std::fmt;

use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Json, Writer},
    },
    registry::LookupSpan,
};

use crate::{label, trace};

/// What drivers log below these levels repeats payloads: the parameters of statements, the frames of messages. lapin logs each returned
/// message with its payload as a warning; returned messages are routine here (rule W9).
const QUIET: &str = "lapin=info,lapin::returned_messages=error,tokio_postgres=info,amq_protocol=info";

/// The filter for a level and its exceptions, such as `info,my_crate=debug`, in which drivers repeat no payloads unless they are named.
#[must_use]
pub fn filter_of(level: &str) -> String {
    format!("{QUIET},{level}")
}

/// Writes lines.
#[derive(Clone, Debug)]
pub struct Lines(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Text(Format<Full>),
    Json(Format<Json>),
}

impl Lines {
    /// For people.
    #[must_use]
    pub fn text() -> Self {
        Self(Kind::Text(Format::default()))
    }

    /// One JSON object a line.
    #[must_use]
    pub fn json() -> Self {
        Self(Kind::Json(Format::default().json()))
    }
}

/// What is said of whoever logs.
fn said() -> Vec<(&'static str, String)> {
    let mut said = label::read(|label| {
        let Some(label) = label else { return Vec::new() };
        let mut said = vec![
            ("namespace", label.namespace.to_string()),
            ("workflow", label.workflow.to_string()),
            ("instance", label.instance.to_string()),
        ];
        said.extend(label.run.map(|run| ("run", run.to_string())));
        if let Some((step, attempt)) = &label.step {
            said.extend([("step", step.to_string()), ("attempt", attempt.to_string())]);
        }
        said.extend(label.session.map(|session| ("session", session.to_string())));
        said
    });
    if let Some((trace, span)) = trace::current_ids() {
        said.extend([("trace_id", trace.to_string()), ("span_id", span.to_string())]);
    }
    said
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let said = said();
        if said.is_empty() {
            return match &self.0 {
                Kind::Text(format) => format.format_event(context, writer, event),
                Kind::Json(format) => format.format_event(context, writer, event),
            };
        }
        let mut line = String::new();
        match &self.0 {
            Kind::Text(format) => {
                format.format_event(context, Writer::new(&mut line), event)?;
                writer.write_str(line.trim_end())?;
                for (name, value) in said {
                    write!(writer, " {name}={value}")?;
                }
                writer.write_char('\n')
            }
            Kind::Json(format) => {
                format.format_event(context, Writer::new(&mut line), event)?;
                let line = line.trim_end();
                // What stands in the line is left as it is: only the end of its object is moved.
                let Some(open) = line.strip_suffix('}') else { return writeln!(writer, "{line}") };
                writer.write_str(open)?;
                for (name, value) in said {
                    write!(writer, ",\"{name}\":{}", serde_json::Value::String(value))?;
                }
                writer.write_str("}\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves what lines say of whoever logs them.
    use std::sync::{Arc, Mutex};

    use everstep_protocol::{Attempt, Namespace, Run, SessionId, TraceContext};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::label::{Label, within};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(lines: Lines, code: impl FnOnce()) -> String {
        let written = Written::default();
        let to = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .event_format(lines)
            .with_writer(move || to.clone());
        // What `json()` does for spans is not asked here.
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), code);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn label() -> Label {
        Label {
            namespace: Namespace::default(),
            workflow: "orders".parse().unwrap(),
            instance: "o-1".parse().unwrap(),
            run: Some(Run(2)),
            session: Some(SessionId(uuid::Uuid::nil())),
            step: Some(("charge".parse().unwrap(), Attempt(3))),
        }
    }

    #[test]
    fn a_line_of_users_code_says_whose_it_is_and_in_which_trace() {
        let trace =
            TraceContext::read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None).unwrap();
        let text = logged(Lines::json(), || {
            let _attached = crate::trace::read(&trace).attach();
            within(&label(), || tracing::info!(cents = 7, "charging"));
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["fields"]["message"], "charging");
        assert_eq!(line["fields"]["cents"], 7);
        assert_eq!(line["level"], "INFO");
        let said = [
            ("namespace", "default"),
            ("workflow", "orders"),
            ("instance", "o-1"),
            ("run", "2"),
            ("step", "charge"),
            ("attempt", "3"),
            ("session", "00000000-0000-0000-0000-000000000000"),
            ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
            ("span_id", "b7ad6b7169203331"),
        ];
        for (name, value) in said {
            assert_eq!(line[name], value, "{name}: {text}");
        }
        let text = logged(Lines::text(), || within(&label(), || tracing::info!("charging")));
        assert!(
            text.contains(
                "charging namespace=default workflow=orders instance=o-1 run=2 step=charge attempt=3"
            ),
            "{text}"
        );
        assert!(text.ends_with('\n') && !text.contains("trace_id"), "{text}");
    }

    #[test]
    fn a_line_of_nobodys_is_as_it_was() {
        let text = logged(Lines::json(), || tracing::info!("begins"));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(line.get("workflow").is_none() && line.get("trace_id").is_none(), "{text}");
    }
}
