"""The slash commands that come with pyagentd: each is an operation that clients have, asked for at a prompt."""
