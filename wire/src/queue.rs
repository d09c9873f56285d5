//! Queue names (QUE-1, SC-3).

use std::fmt;

/// Prefix of every queue name: sidecars prepend it to the actor names in a message's route.
pub const PREFIX: &str = "asya-";
/// Placeholder for the actor in a template.
pub const ACTOR: &str = "{actor}";
/// Placeholder for the namespace in a template.
pub const NAMESPACE: &str = "{namespace}";

/// The name that routes use for the actor of this queue: the queue name without [`PREFIX`].
#[must_use]
pub fn route_name(queue: &str) -> &str {
    queue.strip_prefix(PREFIX).unwrap_or(queue)
}

/// A broker's rules for queue names (VAL-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// RabbitMQ: at most 255 bytes.
    RabbitMq,
    /// SQS: at most 80 letters, digits, `-` and `_`.
    Sqs,
}

impl Naming {
    /// Whether the broker accepts this queue name.
    #[must_use]
    pub fn accepts(self, name: &str) -> bool {
        match self {
            Self::RabbitMq => (1..=255).contains(&name.len()),
            Self::Sqs => (1..=80).contains(&name.len()) && name.chars().all(|c| self.allows(c)),
        }
    }

    /// Like [`Self::accepts`], but also accepts SQS FIFO queues, which sidecars use and the operator never creates
    /// (SC-41).
    #[must_use]
    pub fn accepts_fifo(self, name: &str) -> bool {
        let stem = match self {
            Self::Sqs => name.strip_suffix(FIFO).filter(|_| name.len() <= 80),
            Self::RabbitMq => None,
        };
        self.accepts(stem.unwrap_or(name))
    }

    /// Whether a template may contain this character outside its placeholders.
    #[must_use]
    pub fn allows(self, character: char) -> bool {
        match self {
            // `*` and `#` are wildcards in the queue binding, whose routing key is the name.
            Self::RabbitMq => {
                !character.is_control() && !character.is_whitespace() && !"*#".contains(character)
            }
            Self::Sqs => character.is_ascii_alphanumeric() || character == '-' || character == '_',
        }
    }

    /// The characters of [`Self::allows`], for error messages.
    #[must_use]
    pub fn allowed(self) -> &'static str {
        match self {
            Self::RabbitMq => "printable characters other than * and #",
            Self::Sqs => "letters, digits, - and _",
        }
    }
}

/// Suffix of the names of SQS FIFO queues.
pub const FIFO: &str = ".fifo";

/// Template of a queue name, with placeholders for actor and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(String);

/// Why a template is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// It does not start with [`PREFIX`].
    Prefix,
    /// It does not contain [`ACTOR`].
    NoActor,
    /// It contains an unknown placeholder.
    Placeholder,
    /// It contains a character that the broker does not allow.
    Character(char, Naming),
}

impl Template {
    /// Parses a template for queues of a broker.
    ///
    /// # Errors
    /// If the template is invalid; the text includes the remedy.
    pub fn parse(text: &str, naming: Naming) -> Result<Self, TemplateError> {
        if !text.starts_with(PREFIX) {
            return Err(TemplateError::Prefix);
        }
        if !text.contains(ACTOR) {
            return Err(TemplateError::NoActor);
        }
        let literals = text.replace(ACTOR, "").replace(NAMESPACE, "");
        check_literals(&literals, naming)?;
        Ok(Self(text.to_owned()))
    }

    /// The default template of a sidecar; `namespaced` if it knows its namespace.
    #[must_use]
    pub fn with_namespace(namespaced: bool) -> Self {
        let namespace = if namespaced { "{namespace}-" } else { "" };
        Self(format!("{PREFIX}{namespace}{ACTOR}"))
    }

    /// Whether the namespace is part of the name.
    #[must_use]
    pub fn needs_namespace(&self) -> bool {
        self.0.contains(NAMESPACE)
    }

    /// Returns the queue name for an actor.
    #[must_use]
    pub fn render(&self, namespace: &str, actor: &str) -> String {
        self.0.replace(NAMESPACE, namespace).replace(ACTOR, actor)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for Template {
    fn default() -> Self {
        Self::with_namespace(false)
    }
}

/// Checks the literal parts of a template.
///
/// # Errors
/// If there is an unknown placeholder or a character that the broker does not allow.
pub fn check_literals(literals: &str, naming: Naming) -> Result<(), TemplateError> {
    if literals.contains(['{', '}']) {
        return Err(TemplateError::Placeholder);
    }
    match literals.chars().find(|c| !naming.allows(*c)) {
        Some(c) => Err(TemplateError::Character(c, naming)),
        None => Ok(()),
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => write!(
                f,
                "must start with {PREFIX}, as sidecars expect; try {PREFIX}{NAMESPACE}-{ACTOR}"
            ),
            Self::NoActor => write!(
                f,
                "must contain {ACTOR}, or all actors would share one queue"
            ),
            Self::Placeholder => write!(
                f,
                "may contain only the placeholders {ACTOR} and {NAMESPACE}"
            ),
            Self::Character(c, naming) => {
                write!(f, "{c:?} is not allowed here; use {}", naming.allowed())
            }
        }
    }
}

impl std::error::Error for TemplateError {}

#[cfg(test)]
mod tests {
    use super::{Naming, Template, TemplateError};

    /// SC-3, QUE-1
    #[test]
    fn templates_render_actor_and_namespace() {
        for (text, name) in [
            ("asya-{actor}", "asya-foo"),
            ("asya-{namespace}-{actor}", "asya-shop-foo"),
            ("asya-x-{actor}-{actor}", "asya-x-foo-foo"),
        ] {
            let template = Template::parse(text, Naming::Sqs).expect(text);
            assert_eq!(template.render("shop", "foo"), name);
            assert_eq!(template.needs_namespace(), text.contains("{namespace}"));
        }
        assert_eq!(
            Template::with_namespace(true).render("shop", "foo"),
            "asya-shop-foo"
        );
        assert_eq!(Template::default().render("shop", "foo"), "asya-foo");
    }

    /// QUE-1
    #[test]
    fn invalid_template_is_rejected_with_the_remedy() {
        for (text, naming, error) in [
            ("{actor}", Naming::RabbitMq, TemplateError::Prefix),
            ("asya-queue", Naming::RabbitMq, TemplateError::NoActor),
            (
                "asya-{actor}-{cluster}",
                Naming::RabbitMq,
                TemplateError::Placeholder,
            ),
            (
                "asya-{actor}.x",
                Naming::Sqs,
                TemplateError::Character('.', Naming::Sqs),
            ),
            (
                "asya-{actor}#",
                Naming::RabbitMq,
                TemplateError::Character('#', Naming::RabbitMq),
            ),
        ] {
            assert_eq!(Template::parse(text, naming), Err(error), "{text}");
        }
    }

    /// VAL-11, SC-41
    #[test]
    fn names_are_valid_if_the_broker_accepts_them() {
        let long = "a".repeat(81);
        for (name, rabbitmq, sqs) in [
            ("asya-foo", true, true),
            ("asya-foo.fifo", true, true),
            (".fifo", true, false),
            ("asya.foo", true, false),
            ("asya/ü", true, false),
            ("", false, false),
            (&long, true, false),
        ] {
            assert_eq!(Naming::RabbitMq.accepts(name), rabbitmq, "{name}");
            assert_eq!(Naming::Sqs.accepts_fifo(name), sqs, "{name}");
        }
        assert!(!Naming::Sqs.accepts("asya-foo.fifo"));
        assert!(!Naming::RabbitMq.accepts(&"a".repeat(256)));
    }
}
