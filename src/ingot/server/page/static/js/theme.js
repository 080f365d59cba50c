// Light or dark, before anything is drawn: a plain script, because modules run too late for that.
// Without a choice the page follows the system.

(() => {
  const KEY = "ingot/theme";
  const root = document.documentElement;
  const choices = ["system", "light", "dark"];

  function apply(choice) {
    if (choice === "system") delete root.dataset.theme;
    else root.dataset.theme = choice;
  }

  let choice = "system";
  try {
    choice = localStorage.getItem(KEY) ?? choice;
  } catch {
    // a browser without storage follows the system
  }
  apply(choice);

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("#theme");
    const show = () => {
      button.dataset.choice = choice;
      button.title = button.ariaLabel = `Theme: ${choice}`;
    };
    button.addEventListener("click", () => {
      choice = choices[(choices.indexOf(choice) + 1) % choices.length];
      localStorage.setItem(KEY, choice);
      apply(choice);
      show();
    });
    show();
  });
})();
