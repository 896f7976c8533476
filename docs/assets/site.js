// What scrolls can be reached by the keyboard; the theme wraps tables after the page is loaded.
const reachable = () => {
  document.querySelectorAll(".md-typeset__scrollwrap, .formula").forEach((wide) => {
    if (wide.tabIndex === 0 || wide.scrollWidth <= wide.clientWidth) return;
    wide.tabIndex = 0;
    wide.setAttribute("role", "group");
    wide.setAttribute("aria-label", wide.classList.contains("formula") ? "formula" : "table");
  });
  // A button that copies is no place to navigate to.
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => nav.setAttribute("role", "none"));
  // Parts of a table of contents are no landmarks of their own: two classes may have parts of one name.
  document.querySelectorAll(".md-nav--secondary nav.md-nav:not([role])").forEach((part) => {
    part.removeAttribute("aria-label");
    part.setAttribute("role", "none");
  });
};
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", reachable);
addEventListener("load", reachable);
