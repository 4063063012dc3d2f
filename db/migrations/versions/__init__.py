"""Schema steps, numbered; a step that was released is never edited, and none leads back."""
