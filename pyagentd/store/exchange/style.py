"""How an exported page looks: on light and dark screens, narrow and wide, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --text: #1f2328; --dim: #656d76; --line: #d8d4cc; --user: #eef3fb; --edge: #4a7dc9;
  --code: #f2f0eb; --bad: #b3261e; --link: #0b57d0; --card: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181c; --text: #dfe2e6; --dim: #969ea8; --line: #33373e; --user: #1d2737; --edge: #6f9fe8;
    --code: #20242a; --bad: #ff8a80; --link: #8ab4f8; --card: #1b1e23;
  }
}
* { box-sizing: border-box; }
html { background: var(--page); color: var(--text); -webkit-text-size-adjust: 100%; }
body {
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  max-width: 50rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem;
}
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .4rem; overflow-wrap: anywhere; }
a { color: var(--link); text-underline-offset: .15em; }
.facts { color: var(--dim); font-size: .9rem; margin: 0; padding: 0; list-style: none; display: flex;
  flex-wrap: wrap; gap: .1rem 1.2rem; }
nav { margin: 1.8rem 0 2.5rem; padding: .9rem 1.2rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--card); }
nav h2 { font-size: .8rem; letter-spacing: .05em; text-transform: uppercase; color: var(--dim); margin: 0 0 .4rem; }
nav ol, nav ul { margin: 0 0 .6rem; padding-left: 1.6rem; }
nav li { margin: .15rem 0; }
nav a { text-decoration: none; overflow-wrap: anywhere; }
nav a:hover { text-decoration: underline; }
.turn { margin: 1.6rem 0; scroll-margin-top: 1rem; }
.user { background: var(--user); border-left: .25rem solid var(--edge); border-radius: 0 .6rem .6rem 0;
  padding: .8rem 1.2rem; margin-top: 2.6rem; }
.who { display: flex; gap: .8rem; align-items: baseline; margin: 0 0 .3rem; font-size: .8rem; font-weight: 600;
  color: var(--dim); }
.who time, .who .number { font-weight: 400; }
.prose > :first-child { margin-top: 0; }
.prose > :last-child { margin-bottom: 0; }
.prose { overflow-wrap: anywhere; }
.prose h3 { font-size: 1.3rem; } .prose h4 { font-size: 1.15rem; } .prose h5, .prose h6 { font-size: 1rem; }
.prose h3, .prose h4, .prose h5, .prose h6 { line-height: 1.3; margin: 1.4em 0 .5em; }
.prose img { max-width: 100%; height: auto; border-radius: .3rem; }
.prose blockquote { margin: 1em 0; padding: 0 1rem; border-left: .2rem solid var(--line); color: var(--dim); }
.prose hr { border: 0; border-top: 1px solid var(--line); margin: 2em 0; }
.prose table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1em 0; font-size: .95em; }
.prose th, .prose td { border: 1px solid var(--line); padding: .35rem .7rem; text-align: left; }
.prose th { background: var(--code); }
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace; font-size: .875em; }
code { background: var(--code); border-radius: .25rem; padding: .1em .3em; }
pre { background: var(--code); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto; line-height: 1.45;
  overflow-wrap: normal; }
pre code { background: none; padding: 0; font-size: inherit; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .7rem 0; background: var(--card); }
summary { cursor: pointer; padding: .4rem .8rem; font-size: .9rem; color: var(--dim); overflow-wrap: anywhere; }
summary b { color: var(--text); font-weight: 600; }
summary code { background: none; padding: 0; }
summary .bad, .error { color: var(--bad); }
details > :not(summary) { margin-left: .8rem; margin-right: .8rem; }
details > :last-child { margin-bottom: .8rem; }
details > h3 { font-size: .8rem; color: var(--dim); margin-top: .6rem; margin-bottom: .2rem; }
details pre { margin-top: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 32rem; overflow-y: auto; }
.args { margin-top: 0; margin-bottom: 0; }
.args dt { font-size: .8rem; color: var(--dim); }
.args dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.reasoning .prose { color: var(--dim); font-size: .95em; }
.compaction { border-style: dashed none none; border-radius: 0; background: none; margin: 2rem 0; }
.compaction summary { text-align: center; }
.error pre { border: 1px solid var(--bad); white-space: pre-wrap; }
.agent { border-left: .25rem solid var(--line); }
.agent .user { margin-top: 1.4rem; }
.link { color: var(--dim); }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--dim);
  font-size: .8rem; }
.agents > h2 { font-size: 1.2rem; margin: 3rem 0 .8rem; }
.agent .agents > h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
@media (max-width: 36rem) { body { padding: 1.25rem .9rem 3rem; } .user { padding: .7rem .8rem; } }
@media print {
  :root { color-scheme: light; --page: #fff; --text: #000; --dim: #444; --line: #bbb; --user: #f4f4f4; --edge: #888;
    --code: #f4f4f4; --bad: #900; --link: #000; --card: #fff; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { break-after: page; }
  pre, details pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: none; overflow: visible; }
  .who, summary, h1, .prose h3, .prose h4, .prose h5, .prose h6 { break-after: avoid; }
  img, tr { break-inside: avoid; }
  .prose a[href^="http"]::after { content: " (" attr(href) ")"; font-size: .85em; color: var(--dim); }
}
"""
